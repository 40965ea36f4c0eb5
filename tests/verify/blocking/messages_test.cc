// Messages and the stages of pipelines that wait for them: who holds them up.
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/verify/program.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(Messages, AReceiveFromAnyRankNamesNone) {
  const Report report = verify(program({"recv_any n=4 open; hung", "barrier open; hung"}));
  EXPECT_THAT(report.findings.at(0).message, HasSubstr("waits in recv_any of 4 (call 0"));
}

// Rank 0 collects what the others send, and rank 2 forgets to send. Nothing shows who is at fault;
// that rank 0 does something else than rank 2 from its first such receive on is no fault.
TEST(Messages, ARankThatCollectsFromAllIsNotAtFaultForWhatItLacks) {
  const std::string first =
      "send peer={0} n=8; recv peer={0} n=8; send peer={0} n=8; recv peer={0} n=8; ";
  const std::string second =
      "recv peer={0} n=8; send peer={0} n=8; recv peer={0} n=8; send peer={0} n=8; ";
  const std::string said = judge(
      {fmt::format(fmt::runtime(first), 1) + "recv_any n=8; recv_any n=8; recv_any n=8 open; hung",
       fmt::format(fmt::runtime(second), 0) + "send peer=0 n=8; recv peer=0 n=8 open; hung",
       fmt::format(fmt::runtime(first), 3) + fmt::format(fmt::runtime(first), 3) +
           "all_reduce n=1 open; hung",
       fmt::format(fmt::runtime(second), 2) + "send peer=0 n=8; " +
           fmt::format(fmt::runtime(second), 2) + "all_reduce n=1 open; hung"});
  EXPECT_THAT(said, HasSubstr("deadlock error"));
  EXPECT_THAT(said, Not(HasSubstr("culprits")));
}

// A pipeline of three stages without step numbers, over `rounds` steps of two messages each.
std::string stage(int rank, int rounds, const std::string& end) {
  std::string out;
  for (int i = 0; i < 2 * rounds; ++i) {
    if (rank > 0) out += "recv peer=" + std::to_string(rank - 1) + " n=4; ";
    if (rank < 2) out += "send peer=" + std::to_string(rank + 1) + " n=4; ";
  }
  return out + end;
}

TEST(Messages, AStageWithAStepMoreThanTheOthersIsNamed) {
  EXPECT_THAT(judge({stage(0, 3, "send peer=1 n=4 open; hung"), stage(1, 3, "clean"),
                     stage(2, 3, "clean")}),
              HasSubstr("unequal-iterations error proven culprits=0"));
  EXPECT_THAT(judge({stage(0, 3, "clean"), stage(1, 3, "recv peer=0 n=4 open; hung"),
                     stage(2, 3, "clean")}),
              HasSubstr("unequal-iterations error proven culprits=1"));
  EXPECT_THAT(judge({stage(0, 3, "clean"), stage(1, 3, "clean"),
                     stage(2, 3, "recv peer=1 n=4 open; hung")}),
              HasSubstr("unequal-iterations error proven culprits=2"));
}

TEST(Messages, AStageWithAStepLessThanTheOthersIsNamed) {
  EXPECT_THAT(judge({stage(0, 3, "send peer=1 n=4 open; hung"), stage(1, 3, "clean"),
                     stage(2, 3, "recv peer=1 n=4 open; hung")}),
              HasSubstr("culprits=1"));
}

TEST(Messages, AStageThatReceivesOneMessageLessIsNamed) {
  const std::string cut_short = stage(2, 2, "recv peer=1 n=4; clean");
  EXPECT_THAT(judge({stage(0, 3, "clean"),
                     stage(1, 2,
                           "recv peer=0 n=4; send peer=2 n=4; "
                           "recv peer=0 n=4; send peer=2 n=4 open; hung"),
                     cut_short}),
              HasSubstr("p2p-unmatched error proven culprits=2"));
}

TEST(Messages, NobodyOfTwoStagesOneStepApartIsNamed) {
  const std::string sends = "send peer=1 n=4; send peer=1 n=4; ";
  EXPECT_THAT(
      judge({sends + "send peer=1 n=4 open; hung", "recv peer=0 n=4; recv peer=0 n=4; clean"}),
      testing::AllOf(HasSubstr("p2p-unmatched"), Not(HasSubstr("culprits"))));
}

TEST(Messages, AStageThatExpectsAMicroBatchMoreIsNamed) {
  EXPECT_THAT(
      judge({stage(0, 2, "recv peer=1 n=4 open; hung"), stage(1, 2, "recv peer=2 n=4 open; hung"),
             stage(2, 2, "recv peer=1 n=4 open; hung")}),
      HasSubstr("p2p-cycle error proven culprits=2"));
}

TEST(Messages, AStageThatExpectsAsManyMicroBatchesAsBeforeIsNotNamed) {
  const auto times = [](int n, const std::string& calls) {
    std::string out;
    for (int i = 0; i < n; ++i) out += calls;
    return out;
  };
  const auto rank = [&](const std::string& forward, const std::string& backward, int n,
                        const std::string& end) {
    return times(4, forward) + times(4, backward) + "all_reduce n=1; " + times(n, forward) + end;
  };
  EXPECT_THAT(
      judge({rank("send peer=1 n=4; ", "recv peer=1 n=4; ", 3, "send peer=1 n=4 open; hung"),
             rank("recv peer=0 n=4; send peer=2 n=4; ", "recv peer=2 n=4; send peer=0 n=4; ", 3,
                  "recv peer=2 n=4 open; hung"),
             rank("recv peer=1 n=4; ", "send peer=1 n=4; ", 3, "recv peer=1 n=4 open; hung")}),
      testing::AllOf(HasSubstr("p2p-cycle"), Not(HasSubstr("culprits=2"))));
}

// Rank 0 sends a micro-batch more than in its earlier rounds.
TEST(Messages, OneOfTheSendsInACycleMayBeTooMany) {
  const std::string forward = "send peer=1 n=4; send peer=1 n=4; ";
  const std::string backward = "recv peer=0 n=4; recv peer=0 n=4; ";
  const std::string down = "recv peer=1 n=4; recv peer=1 n=4; all_reduce n=1; ";
  const std::string up = "send peer=0 n=4; send peer=0 n=4; all_reduce n=1; ";
  const Report report =
      verify(program({forward + down + forward + down + forward + "send peer=1 n=4 open; hung",
                      backward + up + backward + up + backward + "send peer=0 n=4 open; hung"}));
  EXPECT_THAT(summary(report), StartsWith("p2p-cycle error proven culprits=0"));
  EXPECT_THAT(report.findings[0].fix, HasSubstr("one of these sends is one too many"));
}

TEST(Messages, NobodyIsNamedIfAllNeighboursReceiveFirst) {
  const auto exchange = [](int rank) {
    std::string out;
    for (const int peer : {rank + 1, rank - 1}) {
      if (peer < 0 || peer > 3) continue;
      const std::string with = " peer=" + std::to_string(peer) + " n=4; ";
      out += peer > rank ? "send" + with + "recv" + with : "recv" + with + "send" + with;
    }
    return out;
  };
  const auto waits = [](int peer) {
    return "recv peer=" + std::to_string(peer) + " n=4 open; hung";
  };
  EXPECT_THAT(judge({exchange(0) + waits(1), exchange(1) + waits(2), exchange(2) + waits(3),
                     exchange(3) + waits(2)}),
              testing::AllOf(HasSubstr("p2p-cycle"), Not(HasSubstr("culprits=3"))));
}

// A link that is gone: who waits for a rank that waits for the network is not a cycle, and no
// rank's program is at fault.
TEST(Messages, AMessageThatBothSidesIssuedAndThatNeverCompletes) {
  EXPECT_EQ(judge({"send peer=1 n=4; recv peer=1 n=8 open; hung", "recv peer=0 n=4 open; hung"}),
            "device-stall error observed group=world seq=0\nverdict findings");
  EXPECT_EQ(judge({"send peer=1 n=4 open; hung", "recv peer=0 n=4; send peer=0 n=8 open; hung"}),
            "device-stall error observed group=world seq=0\nverdict findings");
}

TEST(Messages, AMessageWithAnotherTagThanItsReceiveIsSaidToBeThat) {
  const std::string sends = "send n=4 peer=1 ptag=1 open; hung";
  const Report report = verify(program({sends, "recv n=4 peer=0 ptag=2 open; hung"}));
  ASSERT_EQ(report.findings.size(), 1U);
  EXPECT_EQ(report.findings[0].rule, RuleId::p2p_cycle);
  EXPECT_THAT(report.findings[0].why, HasSubstr("rank 0 sent its message with tag 1"));
  EXPECT_THAT(report.findings[0].fix, StartsWith("give the send and its receive one tag; or "));
  // With many pairs, each is told.
  std::vector<std::string> pairs;
  for (int r = 0; r < 40; ++r)
    pairs.push_back((r % 2 == 0 ? "send n=4 ptag=1 peer=" : "recv n=4 ptag=2 peer=") +
                    std::to_string(r ^ 1) + " open; hung");
  const Report many = verify(program(pairs));
  EXPECT_EQ(many.findings.size(), 20U);
  for (const Finding& f : many.findings) EXPECT_THAT(f.fix, StartsWith("give the send"));
  // The look-alike: both send first, with one tag.
  const Report cycle = verify(program({sends, "send n=4 peer=0 ptag=1 open; hung"}));
  ASSERT_EQ(cycle.findings.size(), 1U);
  EXPECT_THAT(cycle.findings[0].why, Not(HasSubstr("tag")));
}

TEST(Messages, EverybodyReceivesFirst) {
  EXPECT_EQ(judge({"recv peer=1 n=4 open; hung", "recv peer=0 n=4 open; hung"}),
            "p2p-cycle error proven group=world seq=0\nverdict findings");
}

TEST(Messages, ReceiveThenSendIsFineWhereTheOtherSideSendsFirst) {
  EXPECT_EQ(
      judge({"recv peer=1 n=4; send peer=1 n=4; clean", "send peer=0 n=4; recv peer=0 n=4; clean"}),
      "verdict clean");
}

TEST(Messages, PointToPointSizes) {
  EXPECT_THAT(judge({"send peer=1 n=4; clean", "recv peer=0 n=5; clean"}),
              HasSubstr("p2p-size error observed"));
}

TEST(Messages, AReceiveWithoutItsSend) {
  EXPECT_THAT(judge({"recv peer=1 n=4 open; hung", "clean"}),
              HasSubstr("p2p-unmatched error proven culprits=1"));
}

TEST(Messages, MessagesAndACollectiveOfOneGroupInACycle) {
  EXPECT_THAT(judge({"send peer=1 n=4 open; hung", "barrier open; hung"}),
              HasSubstr("deadlock error proven group=world"));
}

TEST(Messages, ARankInALaterStepsMessageLeftTheCollectiveOut) {
  EXPECT_THAT(judge({"send peer=1 n=4 step=2 open; hung", "all_reduce n=4 step=1 open; hung",
                     "all_reduce n=4 step=1 open; hung"}),
              HasSubstr("missing-collective error proven culprits=0 group=world seq=0 step=1"));
}

// A pipeline of four in its first step. Rank 2 exchanges messages in both directions with one
// neighbour alone: it left out the receive for which the other one stands in its send.
TEST(Messages, AStageWhoseExchangeIsNotWholeLeftOutTheMessage) {
  const std::string loss = "all_reduce n=1 open; hung";
  const auto at = [](const std::string& op, int peer) {
    return op + " peer=" + std::to_string(peer) + " n=4";
  };
  const std::string first = at("send", 1) + "; " + at("recv", 1) + "; " + loss;
  const std::string second = at("recv", 0) + "; " + at("send", 2) + "; " + at("recv", 2) + "; " +
                             at("send", 0) + "; " + loss;
  const std::string lacks =
      at("recv", 1) + "; " + at("send", 3) + "; " + at("send", 1) + "; " + loss;
  EXPECT_THAT(judge({first, second, lacks, at("recv", 2) + "; " + at("send", 2) + " open; hung"}),
              HasSubstr("deadlock error proven culprits=2 group=world"));
}

// Over Gloo only a wait shows that a message has arrived, and whoever sleeps has not waited yet.
TEST(Messages, ARankThatSleepsBesideAMessageThatNobodyHoldsUp) {
  const std::string before = "send peer=1 n=4; send peer=1 n=4 open; hung";
  const std::string after = "recv peer=1 n=4; recv peer=1 n=4 open; hung";
  EXPECT_THAT(judge({before, "recv peer=0 n=4; send peer=2 n=4 async open; hung", after}),
              HasSubstr("host-stall error proven culprits=1"));
  // One that waits for it sees that it does not arrive.
  EXPECT_THAT(judge({before, "recv peer=0 n=4; send peer=2 n=4 async open; wait 1 open; hung",
                     "recv peer=1 n=4 open; hung"}),
              HasSubstr("device-stall"));
}

TEST(Messages, AMessageThatItsSenderNeverWaitsFor) {
  const std::string receives = "barrier; recv peer=0 n=4 open; hung";
  EXPECT_EQ(judge({"barrier; send peer=1 n=4 async open; barrier open; hung", receives}),
            "never-waited error observed culprits=0 group=world seq=0\nverdict findings");
  EXPECT_THAT(judge({"barrier; send peer=1 n=4 async open; wait 1 open; hung", receives}),
              HasSubstr("device-stall"));
  // It waited for the one before, and is held up before it comes to this wait: a dead link.
  EXPECT_THAT(
      judge({"send peer=1 n=4 async; wait 0; send peer=1 n=4 async open; barrier open; hung",
             "recv peer=0 n=4; recv peer=0 n=4 open; hung"}),
      HasSubstr("device-stall"));
}

// In a ring, both neighbours count a message more than the rank between them.
TEST(Messages, ARankThatLeftOutAHopBetweenTwoThatWait) {
  const auto hop = [](int rank) {
    const std::string next = std::to_string((rank + 1) % 4), last = std::to_string((rank + 3) % 4);
    const std::string send = "send peer=" + next + " n=4", recv = "recv peer=" + last + " n=4";
    return rank % 2 == 0 ? std::pair(send, recv) : std::pair(recv, send);
  };
  const auto hops = [&](int rank, int times) {
    std::string out;
    for (int i = 0; i < times; ++i) out += hop(rank).first + "; " + hop(rank).second + "; ";
    return out;
  };
  std::vector<std::string> ranks;
  for (int r = 0; r < 4; ++r) {
    const std::string round = hops(r, 3) + "all_reduce n=1; " + hops(r, 2);
    ranks.push_back(round + (r == 1   ? "all_reduce n=1 open; hung"
                             : r == 2 ? hop(r).first + "; " + hop(r).second + " open; hung"
                                      : hop(r).first + (r == 0 ? " open; hung" : "; ") +
                                            (r == 0 ? "" : hop(r).second + " open; hung")));
  }
  EXPECT_THAT(judge(ranks), HasSubstr("culprits=1 "));
}

TEST(Messages, AMessageToAnotherPeerFromTheLineOfTheUsualOneIsABreak) {
  const std::string reduce = "all_reduce n=1 at=a.py:9; ";
  const std::string send = "send peer=1 n=4 at=a.py:7; ", in = "recv peer=0 n=4 at=a.py:5; ";
  const std::string on = "send peer=2 n=4 at=a.py:7; ", last = "recv peer=1 n=4 at=a.py:5; ";
  const std::string first = send + reduce, second = in + on + reduce, third = last + reduce;
  EXPECT_THAT(judge({first + first + send + "all_reduce n=1 at=a.py:9 open; hung",
                     second + second + in + "send peer=0 n=4 at=a.py:7 open; hung",
                     third + third + "recv peer=1 n=4 at=a.py:5 open; hung"}),
              HasSubstr("error proven culprits=1 "));
}

// Rank 1 of a pipeline expects a micro-batch more than rank 0 has, which waits for its gradients.
TEST(Messages, AStageThatSentAsMuchAsItReceivesLeftNothingOut) {
  const std::string sends = "send peer=1 n=8; ", receives = "recv peer=1 n=8; ";
  const std::string first =
      sends + sends + sends + receives + sends + receives + receives + "recv peer=1 n=8 open; hung";
  const std::string in = "recv peer=0 n=8; ", out = "send peer=2 n=8; ";
  const std::string back = "recv peer=2 n=8; ", on = "send peer=0 n=8; ";
  const std::string second = in + out + in + out + back + on + in + out + back + on + in + out +
                             back + on + "recv peer=0 n=8 open; hung";
  const std::string last =
      "recv peer=1 n=8; send peer=1 n=8; recv peer=1 n=8; send peer=1 n=8; "
      "recv peer=1 n=8; send peer=1 n=8; recv peer=1 n=8; "
      "send peer=1 n=8 open; hung";
  const Report report = verify(program({first, second, last}));
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].rule, RuleId::p2p_cycle);
  EXPECT_TRUE(report.findings[0].culprits.empty());
  EXPECT_THAT(report.findings[0].fix, HasSubstr("counts of micro-batches"));
}

// A ring, in which the batch of rank 1 is longer.
TEST(Messages, ARankWhoseMessagesFitNeitherNeighbourIsNamed) {
  const auto job = [](int rank) {
    const std::string n = rank == 1 ? " n=6" : " n=4";
    return "send peer=" + std::to_string((rank + 1) % 3) + n +
           " async; recv peer=" + std::to_string((rank + 2) % 3) + n + "; clean";
  };
  const Report report = verify(program({job(0), job(1), job(2)}));
  ASSERT_EQ(report.findings.size(), 2U);
  for (const Finding& f : report.findings) {
    EXPECT_EQ(f.rule, RuleId::p2p_size);
    EXPECT_EQ(f.culprits, std::vector<trace::Rank>{trace::Rank(1)});
  }
}

// Rank 0 leaves out the last receive of step 2 and goes on to step 3: rank 1 still stands in
// step 2. Steps have as many rounds as their texts need, so that the past predicts nothing.
TEST(Messages, ARankThatWentOnToTheNextStepLeftOutTheMessage) {
  const auto round = [](int step, const std::string& first, const std::string& then) {
    return fmt::format("{0} n=8 peer={2} step={3}; {1} n=1 peer={2} step={3}; ", first, then,
                       first == "send" ? 1 : 0, step);
  };
  std::string sender = "backend nccl; ";
  std::string receiver = sender;
  const auto repeat = [&](int step, int rounds) {
    for (int i = 0; i < rounds; ++i) {
      sender += round(step, "send", "recv");
      receiver += round(step, "recv", "send");
    }
  };
  repeat(0, 1);
  repeat(1, 3);
  for (std::string* const rank : {&sender, &receiver}) *rank += "all_reduce n=1 step=1; ";
  repeat(2, 3);
  EXPECT_THAT(
      judge({sender + "send n=8 peer=1 step=2; send n=8 peer=1 step=3 async open; "
                      "recv n=1 peer=1 step=3 async open; all_reduce n=1 step=3 async open; hung",
             receiver + "recv n=8 peer=0 step=2; send n=1 peer=0 step=2 async open; hung"}),
      HasSubstr("p2p-unmatched error observed culprits=0 "));
}

// Two pipelines of two stages. After its first step, rank 1 leaves out what all others wait in, and
// begins the next step with messages that nobody expects yet. Its sister, rank 0, shows it.
TEST(Messages, WhoseSisterWaitsInACollectiveLeftThatOut) {
  const auto step = [](int rank) {
    const int peer = rank ^ 2;
    const std::string forth = fmt::format("send g=pp_{} peer={} n=6 coalesced=1; ", rank % 2, peer);
    const std::string back = fmt::format("recv g=pp_{} peer={} n=6 coalesced=2; ", rank % 2, peer);
    return rank < 2 ? forth + back
                    : std::string() + fmt::format(
                                          "recv g=pp_{0} peer={1} n=6 coalesced=1; send g=pp_{0} "
                                          "peer={1} n=6 coalesced=2; ",
                                          rank % 2, peer);
  };
  const auto start = [](int rank) {
    return fmt::format("backend nccl; group pp_{0} {0},{1}; broadcast n=9 root=0; ", rank % 2,
                       rank % 2 + 2);
  };
  std::vector<std::string> ranks;
  for (int r = 0; r < 4; ++r) {
    ranks.push_back(start(r) + step(r) + "all_reduce n=1; ");
    if (r != 1) ranks.back() += "all_reduce n=2 open; hung";
  }
  ranks[1] +=
      "send g=pp_1 peer=3 n=6 coalesced=3; send g=pp_1 peer=3 n=6 coalesced=4 open; "
      "recv g=pp_1 peer=3 n=6 coalesced=4 open; hung";
  EXPECT_THAT(judge(ranks),
              HasSubstr("missing-collective error observed culprits=1 group=world seq=2"));
}

// A first round may have six messages or twelve: nothing shows whether rank 1 left out the
// collective after six, or rank 0 six messages.
TEST(Messages, ARoundOfTwiceTheLengthIsNoHabit) {
  const std::string mine =
      "send peer=1 n=6; send peer=1 n=6; recv peer=1 n=6; send peer=1 n=6; "
      "recv peer=1 n=6; recv peer=1 n=6; ";
  const auto theirs = [](const std::string& open) {
    return fmt::format(
        "recv peer=0 n=6{0}; recv peer=0 n=6{0}; send peer=0 n=6{0}; "
        "recv peer=0 n=6{0}; send peer=0 n=6{0}; send peer=0 n=6{0}; ",
        open);
  };
  const std::string start = "backend nccl; broadcast n=9 root=0; ";
  const std::string said =
      judge({start + mine + "all_reduce n=1 open; hung",
             start + theirs("") + theirs(" open") + "all_reduce n=1 open; hung"});
  EXPECT_THAT(said, HasSubstr("p2p-unmatched"));
  EXPECT_THAT(said, Not(HasSubstr("culprits")));
}

}  // namespace
}  // namespace lockstep::verify
