// Who waits for whom at the end, and who is to blame.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/trace_lines.h"
#include "tests/support/trace_text.h"
#include "tests/verify/program.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(Blocking, TwoGroupsInOppositeOrdersAreADeadlock) {
  const std::string groups = "group a 0,1; group b 0,1; ";
  EXPECT_EQ(
      judge({groups + "all_reduce g=a n=4 open; hung", groups + "all_reduce g=b n=4 open; hung"}),
      "cross-group-deadlock error proven group=a seq=0\nverdict findings");
}

TEST(Blocking, OneLineInTwoGroupsMayBeGroupsThatWereMadeInOtherOrders) {
  const auto judged = [](const std::string& other_line) {
    const auto rank = [](int r, const std::string& group, const std::string& at) {
      return header_line(r, 2) + json_line({{"group", "a"}, {"ranks", {0, 1}}}) +
             json_line({{"group", "b"}, {"ranks", {0, 1}}}) +
             issue_line(0, group, "all_reduce", {{"in", {{4}}}, {"at", at}}) +
             event_line("wait", 0) + end_line("hung");
    };
    const Report report =
        verify(run_from_text({rank(0, "a", "train.py:7"), rank(1, "b", other_line)}));
    EXPECT_EQ(report.findings.at(0).rule, RuleId::cross_group_deadlock);
    return report.findings[0].fix;
  };
  EXPECT_THAT(judged("train.py:7"), HasSubstr("made these two groups in different orders"));
  EXPECT_THAT(judged("train.py:9"), Not(HasSubstr("different orders")));
}

TEST(Blocking, AReceiveFromAnyRankNamesNone) {
  const Report report = verify(program({"recv_any n=4 open; hung", "barrier open; hung"}));
  EXPECT_THAT(report.findings.at(0).message, HasSubstr("waits in recv_any of 4 (call 0"));
}

TEST(Blocking, ThoseWhoseFilesEndBesideACycleAreNotItsCause) {
  const std::string groups = "group a 0,1; group b 0,1; barrier; ";
  EXPECT_EQ(judge({groups + "all_reduce g=a n=4 open; hung",
                   groups + "all_reduce g=b n=4 open; hung", "barrier; cut", "barrier; cut"}),
            "cross-group-deadlock error proven group=a seq=0\nverdict findings");
}

TEST(Blocking, StalledRanksAreReportedAfterACycle) {
  const std::string groups = "group a 0,1; group b 0,1; group c 2,3; barrier; ";
  const Report report = verify(program(
      {groups + "all_reduce g=a n=4 open; hung", groups + "all_reduce g=b n=4 open; hung",
       "group c 2,3; barrier; all_reduce g=c n=4 open; hung", "group c 2,3; barrier; hung"}));
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].rule, RuleId::cross_group_deadlock) << summary(report);
}

TEST(Blocking, ReportsTheWaitsWhereAllFilesJustEnd) {
  const std::string waits = "all_reduce n=4; all_reduce n=8 open at=train.py:7; cut";
  const Report report = verify(program({waits, waits, "all_reduce n=4; cut"}));
  EXPECT_EQ(report.verdict, Verdict::inconclusive) << summary(report);
  EXPECT_THAT(report.unknown,
              ::testing::Contains(::testing::AllOf(HasSubstr("ranks 0, 1 wait in all_reduce"),
                                                   HasSubstr("train.py:7) for rank 2"))));
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

TEST(Blocking, AStageWithAStepMoreThanTheOthersIsNamed) {
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

TEST(Blocking, AStageWithAStepLessThanTheOthersIsNamed) {
  EXPECT_THAT(judge({stage(0, 3, "send peer=1 n=4 open; hung"), stage(1, 3, "clean"),
                     stage(2, 3, "recv peer=1 n=4 open; hung")}),
              HasSubstr("culprits=1"));
}

TEST(Blocking, AStageThatReceivesOneMessageLessIsNamed) {
  const std::string cut_short = stage(2, 2, "recv peer=1 n=4; clean");
  EXPECT_THAT(judge({stage(0, 3, "clean"),
                     stage(1, 2,
                           "recv peer=0 n=4; send peer=2 n=4; "
                           "recv peer=0 n=4; send peer=2 n=4 open; hung"),
                     cut_short}),
              HasSubstr("p2p-unmatched error proven culprits=2"));
}

TEST(Blocking, OfTwoStagesOneStepApartNobodyIsNamed) {
  const std::string sends = "send peer=1 n=4; send peer=1 n=4; ";
  EXPECT_THAT(
      judge({sends + "send peer=1 n=4 open; hung", "recv peer=0 n=4; recv peer=0 n=4; clean"}),
      testing::AllOf(HasSubstr("p2p-unmatched"), Not(HasSubstr("culprits"))));
}

TEST(Blocking, AStageThatExpectsAMicroBatchMoreIsNamed) {
  EXPECT_THAT(
      judge({stage(0, 2, "recv peer=1 n=4 open; hung"), stage(1, 2, "recv peer=2 n=4 open; hung"),
             stage(2, 2, "recv peer=1 n=4 open; hung")}),
      HasSubstr("p2p-cycle error proven culprits=2"));
}

TEST(Blocking, AStageThatExpectsAsManyMicroBatchesAsBeforeIsNotNamed) {
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
TEST(Blocking, OfSendsInACycleOneMayBeTooMany) {
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

TEST(Blocking, OfNeighboursThatAllReceiveFirstNobodyIsNamed) {
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

TEST(Blocking, TheSameTwoGroupsAsynchronouslyAreNot) {
  const std::string groups = "group a 0,1; group b 0,1; ";
  EXPECT_EQ(
      judge({groups + "all_reduce g=a n=4 async; all_reduce g=b n=4 async; wait 0; wait 1; clean",
             groups + "all_reduce g=b n=4 async; all_reduce g=a n=4 async; wait 0; wait 1; clean"}),
      "verdict clean");
}

TEST(Blocking, AProgramThatNeverRanIsReplayed) {
  const std::string groups = "group a 0,1; group b 0,1; ";
  const std::vector<std::string> opposite = {
      groups + "all_reduce g=a n=4; all_reduce g=b n=4; clean",
      groups + "all_reduce g=b n=4; all_reduce g=a n=4; clean"};
  EXPECT_THAT(summary(verify(program(opposite, /*timed=*/false))),
              HasSubstr("cross-group-deadlock error proven"));
  EXPECT_EQ(summary(verify(program({opposite[0], opposite[0]}, false))), "verdict clean");
}

TEST(Blocking, ARankThatFinishedEarlyHoldsTheOthersUp) {
  EXPECT_EQ(
      judge({"all_reduce n=4 step=0; all_reduce n=4 step=1 open; hung",
             "all_reduce n=4 step=0; clean",
             "all_reduce n=4 step=0; all_reduce n=4 step=1 open; hung"}),
      "unequal-iterations error proven culprits=1 group=world seq=1 step=1\nverdict findings");
}

TEST(Blocking, ARankThatContinuesAloneIsTheDeviant) {
  EXPECT_THAT(judge({"all_reduce n=4 step=0; clean",
                     "all_reduce n=4 step=0; all_reduce n=4 step=1 open; hung",
                     "all_reduce n=4 step=0; clean"}),
              HasSubstr("unequal-iterations error proven culprits=1 group=world seq=1 step=1"));
}

TEST(Blocking, RanksThatStoppedAlikeAreReportedOnce) {
  const std::string waits = "all_reduce n=4; all_reduce n=8 open; hung";
  const Report killed =
      verify(program({waits, "all_reduce n=4; killed", "all_reduce n=4; killed"}));
  ASSERT_EQ(killed.findings.size(), 1U) << summary(killed);
  EXPECT_THAT(killed.findings[0].message, HasSubstr("ranks 1, 2 were killed before call"));
  const Report one = verify(program({waits, "all_reduce n=4; killed", waits}));
  ASSERT_EQ(one.findings.size(), 1U) << summary(one);
  EXPECT_THAT(one.findings[0].message, HasSubstr("rank 1 was killed before call"));
}

TEST(Blocking, ADeadRankIsNamedAndItsVictimsAreNot) {
  EXPECT_EQ(judge({"all_reduce n=4; all_reduce n=4 open; hung", "all_reduce n=4; cut",
                   "all_reduce n=4; all_reduce n=4 open; hung"}),
            "host-stall error proven culprits=1 group=world seq=1\nverdict findings");
}

TEST(Blocking, ACallInWhichARankDiedStallsForThatReason) {
  const std::string in_call = "all_reduce n=4; all_reduce n=4 open; ";
  EXPECT_EQ(judge({in_call + "cut", in_call + "hung", in_call + "hung"}),
            "host-stall error observed culprits=0 group=world seq=1\nverdict findings");
  // Most of a job that hung were ended.
  EXPECT_EQ(judge({in_call + "cut", in_call + "cut", in_call + "hung"}),
            "device-stall error observed group=world seq=1\nverdict findings");
  // With nobody dead, nobody can be singled out.
  EXPECT_EQ(judge({in_call + "hung", in_call + "hung", in_call + "hung"}),
            "device-stall error observed group=world seq=1\nverdict findings");
}

TEST(Blocking, TheRootOfAChainIsNamed) {
  // 0 waits for 1 in group a, 1 waits for 2 in group b, 2 is stuck outside of any call.
  EXPECT_EQ(judge({"group a 0,1; all_reduce g=a n=4 open; hung",
                   "group a 0,1; group b 1,2; all_reduce g=b n=4 open; hung",
                   "group b 1,2; modality 0 text; hung"}),
            "host-stall error proven culprits=2 group=b seq=0\nverdict findings");
}

TEST(Blocking, ExceptionsAreRootsAndLostConnectionsVictims) {
  const std::string out =
      judge({"all_reduce n=4; all_reduce n=4 open; raise 1 Connection closed by peer; exception",
             "all_reduce n=4; raise CUDA out of memory; exception",
             "all_reduce n=4; all_reduce n=4 open; raise 1 Connection closed by peer; exception"});
  EXPECT_EQ(out, "rank-exception error observed culprits=1 group=world seq=1\nverdict findings");
}

TEST(Blocking, AllWhoCameAndNothingCompletes) {
  EXPECT_THAT(judge({"all_reduce n=4 open; hung", "all_reduce n=4; hung", "all_reduce n=4; hung"}),
              HasSubstr("device-stall error observed culprits=0"));
}

// A link that is gone: who waits for a rank that waits for the network is not a cycle, and no
// rank's program is at fault.
TEST(Blocking, AMessageThatBothSidesIssuedAndThatNeverCompletes) {
  EXPECT_EQ(judge({"send peer=1 n=4; recv peer=1 n=8 open; hung", "recv peer=0 n=4 open; hung"}),
            "device-stall error observed group=world seq=0\nverdict findings");
  EXPECT_EQ(judge({"send peer=1 n=4 open; hung", "recv peer=0 n=4; send peer=0 n=8 open; hung"}),
            "device-stall error observed group=world seq=0\nverdict findings");
}

TEST(Blocking, ACallThatOneMemberDidNotCompleteHoldsUpTheNext) {
  const std::string out =
      judge({"all_reduce n=4 open; hung", "all_reduce n=4; all_reduce n=8 open; hung"});
  EXPECT_EQ(out, "device-stall error observed culprits=0 group=world seq=0\nverdict findings");
}

TEST(Blocking, SkewBetweenRunningRanksIsNoError) {
  const auto run =
      program({"all_reduce n=4; all_reduce n=4; all_reduce n=4 open; cut", "all_reduce n=4; cut"});
  EXPECT_EQ(summary(verify(run, {.live = true})), "verdict clean");
}

TEST(Blocking, ALiveDeadlockIsProvenWithoutAnEndMark) {
  const std::string groups = "group a 0,1; group b 0,1; ";
  const Report report = verify(
      program({groups + "all_reduce g=a n=4 open; cut", groups + "all_reduce g=b n=4 open; cut"}),
      {.live = true});
  EXPECT_TRUE(proves_stuck(report)) << summary(report);
}

TEST(Blocking, ALiveRankThatMayStillComeProvesNothing) {
  const Report report = verify(
      program({"all_reduce n=4 open; cut", "all_reduce n=4 open; cut", "modality 0 text; cut"}),
      {.live = true});
  EXPECT_FALSE(proves_stuck(report)) << summary(report);
}

TEST(Blocking, ALiveRankThatEndedProvesIt) {
  EXPECT_TRUE(proves_stuck(verify(program({"all_reduce n=4 open; cut", "clean"}), {.live = true})));
}

TEST(Blocking, AMessageWithAnotherTagThanItsReceiveIsSaidToBeThat) {
  const std::string sends = "send n=4 peer=1 ptag=1 open; hung";
  const Report report = verify(program({sends, "recv n=4 peer=0 ptag=2 open; hung"}));
  ASSERT_EQ(report.findings.size(), 1U);
  EXPECT_EQ(report.findings[0].rule, RuleId::p2p_cycle);
  EXPECT_THAT(report.findings[0].why, HasSubstr("rank 0 sent its message with tag 1"));
  EXPECT_THAT(report.findings[0].fix, StartsWith("give the send and its receive one tag; or "));
  // Of many pairs, each.
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

TEST(Blocking, EverybodyReceivesFirst) {
  EXPECT_EQ(judge({"recv peer=1 n=4 open; hung", "recv peer=0 n=4 open; hung"}),
            "p2p-cycle error proven group=world seq=0\nverdict findings");
}

TEST(Blocking, ReceiveThenSendIsFineWhereTheOtherSideSendsFirst) {
  EXPECT_EQ(
      judge({"recv peer=1 n=4; send peer=1 n=4; clean", "send peer=0 n=4; recv peer=0 n=4; clean"}),
      "verdict clean");
}

TEST(Blocking, PointToPointSizes) {
  EXPECT_THAT(judge({"send peer=1 n=4; clean", "recv peer=0 n=5; clean"}),
              HasSubstr("p2p-size error observed"));
}

TEST(Blocking, AReceiveWithoutItsSend) {
  EXPECT_THAT(judge({"recv peer=1 n=4 open; hung", "clean"}),
              HasSubstr("p2p-unmatched error proven culprits=1"));
}

TEST(Blocking, ARankWithoutATraceMayHaveCome) {
  const Report report =
      verify(run_of({{0, "all_reduce n=4 open; hung"}, {2, "all_reduce n=4 open; hung"}}, 3));
  EXPECT_EQ(summary(report), "verdict inconclusive");
}

TEST(Blocking, ADeadRankIsNamedAlthoughItLeftAnAsynchronousCallOpen) {
  EXPECT_EQ(judge({"all_reduce n=4 async; wait 0; all_reduce n=4 async open; wait 1 open; hung",
                   "all_reduce n=4 async open; cut"}),
            "host-stall error proven culprits=1 group=world seq=1\nverdict findings");
}

TEST(Blocking, AnExceptionWithoutItsCallEndsTheOneTheRankWasIn) {
  EXPECT_EQ(judge({"all_reduce n=4 open; raise Connection closed by peer; exception",
                   "modality 0 text; cut",
                   "all_reduce n=4 open; raise Connection closed by peer; exception"}),
            "host-stall error observed culprits=1 group=world seq=0\nverdict findings");
}

TEST(Blocking, MessagesAndACollectiveOfOneGroupInACycle) {
  EXPECT_THAT(judge({"send peer=1 n=4 open; hung", "barrier open; hung"}),
              HasSubstr("deadlock error proven group=world"));
}

TEST(Blocking, ARankInALaterStepsMessageLeftTheCollectiveOut) {
  EXPECT_THAT(judge({"send peer=1 n=4 step=2 open; hung", "all_reduce n=4 step=1 open; hung",
                     "all_reduce n=4 step=1 open; hung"}),
              HasSubstr("missing-collective error proven culprits=0 group=world seq=0 step=1"));
}

// A pipeline of four in its first step. Rank 2 exchanges messages in both directions with one
// neighbour alone: it left out the receive for which the other one stands in its send.
TEST(Blocking, AStageWhoseExchangeIsNotWholeLeftOutTheMessage) {
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

TEST(Blocking, TracesCopiedWhileTheJobRanAccuseNobodyForBeingBehind) {
  EXPECT_EQ(judge({"all_reduce n=4; all_reduce n=4 open; cut", "all_reduce n=4; cut"}),
            "verdict inconclusive");
}

TEST(Blocking, ARankKilledInsideACallIsTheCauseOfItsPeersLostConnections) {
  const std::string lost =
      "barrier; all_reduce n=4 step=0 open; raise 1 Connection closed by peer; exception";
  EXPECT_EQ(judge({lost, "barrier; all_reduce n=4 step=0 open; killed", lost}),
            "host-stall error observed culprits=1 group=world seq=1 step=0\nverdict findings");
}

// Over Gloo only a wait shows that a message has arrived, and whoever sleeps has not waited yet.
TEST(Blocking, ARankThatSleepsBesideAMessageThatNobodyHoldsUp) {
  const std::string before = "send peer=1 n=4; send peer=1 n=4 open; hung";
  const std::string after = "recv peer=1 n=4; recv peer=1 n=4 open; hung";
  EXPECT_THAT(judge({before, "recv peer=0 n=4; send peer=2 n=4 async open; hung", after}),
              HasSubstr("host-stall error proven culprits=1"));
  // One that waits for it sees that it does not arrive.
  EXPECT_THAT(judge({before, "recv peer=0 n=4; send peer=2 n=4 async open; wait 1 open; hung",
                     "recv peer=1 n=4 open; hung"}),
              HasSubstr("device-stall"));
}

TEST(Blocking, AMessageThatItsSenderNeverWaitsFor) {
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

TEST(Blocking, RanksThatStandInTheCreationOfAGroup) {
  const std::string goes_on = "all_reduce n=1; all_reduce n=2 open; hung";
  const auto judged = [&](const std::string& second, bool creates) {
    trace::Run run = program({"all_reduce n=1; cut", second, goes_on});
    trace::RankNote stack;
    stack.kind = trace::RankNote::Kind::stack;
    stack.rank = trace::Rank(0);
    stack.text = "its process was in the creation of a process group";
    stack.creates_group = creates;
    run.notes.push_back(stack);
    return summary(verify(run));
  };
  EXPECT_EQ(judged(goes_on, true),
            "group-divergence error observed group=world seq=1\nverdict findings");
  EXPECT_EQ(judged(goes_on, false),
            "host-stall error proven culprits=0 group=world seq=1\nverdict findings");
  // The one that stands elsewhere may be the one that does not come to create it.
  EXPECT_EQ(judged("all_reduce n=1; hung", true),
            "host-stall error proven culprits=1 group=world seq=1\nverdict findings");
}

TEST(Blocking, RanksThatAllStandInTheCreationOfAGroup) {
  const auto judged = [](const std::string& second, int creators) {
    trace::Run run = program({"barrier; cut", second});
    for (int r = 0; r < creators; ++r) {
      trace::RankNote stack;
      stack.kind = trace::RankNote::Kind::stack;
      stack.rank = trace::Rank(r);
      stack.text = "its process was in the creation of a process group";
      stack.creates_group = true;
      run.notes.push_back(stack);
    }
    return summary(verify(run));
  };
  EXPECT_EQ(judged("barrier; cut", 2), "group-divergence error observed\nverdict findings");
  // Rank 1 may still come, or has ended.
  EXPECT_EQ(judged("barrier; cut", 1), "verdict inconclusive");
}

TEST(Blocking, ARankThatWaitsWasNotDeadBecauseItsWatchdogWasLater) {
  const std::string groups = "group a 0,1; group b 1,2; ";
  const auto job = [&](const std::string& end) {
    return judge({groups + "all_reduce n=1 g=a open; hung",
                  groups + "all_reduce n=1 g=b open; " + end, groups + "barrier open; hung"});
  };
  EXPECT_EQ(job("cut"), job("hung"));
}

// In a ring, both neighbours count a message more than the rank between them.
TEST(Blocking, ARankThatLeftOutAHopBetweenTwoThatWait) {
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

TEST(Blocking, AnExtraCallThatIsTheLastMayComeAfterSkippedOnes) {
  const std::string steps = "all_reduce n=8 at=a.py:2; all_reduce n=8 at=a.py:2; ";
  const std::string goes_on = steps + "all_reduce n=8 at=a.py:2 open; hung";
  const Report skipped =
      verify(program({steps + "all_reduce n=1 at=a.py:5 open; cut", goes_on, goes_on}));
  ASSERT_FALSE(skipped.findings.empty());
  EXPECT_EQ(skipped.findings[0].culprits, std::vector<trace::Rank>{trace::Rank(0)});
  EXPECT_THAT(skipped.findings[0].why, HasSubstr("a loop was left early"));
  // What follows shows that it was one too many.
  const Report more = verify(program(
      {steps + "all_reduce n=1 at=a.py:5; all_reduce n=8 at=a.py:2 open; hung", goes_on, goes_on}));
  ASSERT_FALSE(more.findings.empty());
  EXPECT_THAT(more.findings[0].why, Not(HasSubstr("a loop was left early")));
}

// One rank averages later than the other, or reports a loss that the other does not: rank 0 may
// make a round too many, rank 1 a round too few or a call too many.
TEST(Blocking, OfTwoRanksOfWhichOneLeavesALoopNobodyIsNamed) {
  const std::string step = "all_reduce n=32 at=a.py:2; all_reduce n=4 at=a.py:2; ";
  const std::string goes_on = "all_reduce n=32 at=a.py:2 open; hung";
  const std::string leaves = "all_reduce n=1 at=a.py:5 open; cut";
  const std::string steps = step + step + step;
  EXPECT_EQ(judge({steps + goes_on, steps + leaves}),
            "extra-collective error proven group=world seq=6\nverdict findings");
  const Report report = verify(program({steps + leaves, steps + goes_on}));
  ASSERT_FALSE(report.findings.empty());
  EXPECT_TRUE(report.findings[0].culprits.empty());
  EXPECT_THAT(report.findings[0].message, HasSubstr("rank 0 came to all_reduce of 1 (call 6"));
  EXPECT_THAT(report.findings[0].message, HasSubstr("different numbers of rounds"));
  // Within a round no loop ends; and of three ranks, the two agree.
  const std::string within = step + step + "all_reduce n=32 at=a.py:2; ";
  EXPECT_THAT(judge({within + "all_reduce n=4 at=a.py:2 open; hung", within + leaves}),
              HasSubstr("culprits=1 "));
  EXPECT_THAT(judge({step + step + goes_on, step + step + leaves, step + step + goes_on}),
              HasSubstr("culprits=1 "));
}

// Rank 1 averages its model a step later than rank 0: its averages pair with those of rank 0, and
// in the end it lacks one. Or rank 0 averages too early.
TEST(Blocking, OfTwoRanksThatAverageInDifferentStepsNobodyIsNamed) {
  const std::string average = "all_reduce n=32 at=a.py:4; ";
  const std::string alone[] = {"all_reduce g=own0 n=32 at=a.py:2; ",
                               "all_reduce g=own1 n=32 at=a.py:2; "};
  const auto rounds = [&](int rank, int count) {
    std::string out;
    for (int i = 0; i < count; ++i) out += alone[rank] + alone[rank] + average;
    return out;
  };
  const std::string first = "group own0 0; " + alone[0] + average + rounds(0, 2) + alone[0] +
                            alone[0] + "all_reduce n=32 at=a.py:4 open; hung";
  const std::string second =
      "group own1 1; " + rounds(1, 3) + alone[1] + "all_reduce n=1 at=a.py:7 open; cut";
  const Report report = verify(program({first, second}));
  ASSERT_FALSE(report.findings.empty());
  EXPECT_TRUE(report.findings[0].culprits.empty()) << report.findings[0].message;
}

TEST(Blocking, AMessageToAnotherPeerFromTheLineOfTheUsualOneIsABreak) {
  const std::string reduce = "all_reduce n=1 at=a.py:9; ";
  const std::string send = "send peer=1 n=4 at=a.py:7; ", in = "recv peer=0 n=4 at=a.py:5; ";
  const std::string on = "send peer=2 n=4 at=a.py:7; ", last = "recv peer=1 n=4 at=a.py:5; ";
  const std::string first = send + reduce, second = in + on + reduce, third = last + reduce;
  EXPECT_THAT(judge({first + first + send + "all_reduce n=1 at=a.py:9 open; hung",
                     second + second + in + "send peer=0 n=4 at=a.py:7 open; hung",
                     third + third + "recv peer=1 n=4 at=a.py:5 open; hung"}),
              HasSubstr("error proven culprits=1 "));
}

// One rank validates a batch more than the other, or less.
TEST(Blocking, OfTwoRanksOfWhichOneReducesWhereTheOtherGathersNobodyIsNamed) {
  const std::string batches = "all_gather n=16 at=a.py:4; all_gather n=16 at=a.py:4; ";
  EXPECT_EQ(judge({batches + "all_reduce n=1 at=a.py:5 open; hung",
                   batches + "all_gather n=16 at=a.py:4 open; hung"}),
            "op-mismatch error proven group=world seq=2\nverdict findings");
}

// A sharded job in its first step. That rank 0 got further, to a second such call, says nothing.
TEST(Blocking, OfTwoRanksThatBeginDifferentlyNobodyIsNamed) {
  EXPECT_EQ(judge({"all_gather_into_tensor in=8 out=16 at=a.py:3; "
                   "all_gather_into_tensor in=4 out=8 at=a.py:5 open; hung",
                   "all_gather_into_tensor in=4 out=8 at=a.py:5 open; cut"}),
            "missing-collective error proven group=world seq=0\nverdict findings");
}

// Rank 1 of a pipeline expects a micro-batch more than rank 0 has, which waits for its gradients.
TEST(Blocking, AStageThatSentAsMuchAsItReceivesLeftNothingOut) {
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
TEST(Blocking, ARankWhoseMessagesFitNeitherNeighbourIsNamed) {
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

// What came before a call says nothing where several threads issue calls. Rank 0 left one out in
// group b, or rank 1 made one too many.
TEST(Blocking, TheOrderOfCallsOfSeveralThreadsAccusesNobody) {
  const std::string groups = "group a 0,1; group b 0,1; barrier at=t.py:1; ";
  const std::string a = "all_reduce g=a n=4 at=t.py:5; ";
  const std::string b = "all_reduce g=b n=4 at=t.py:5 thread=1; ";
  const std::string rank_0 = groups + a + b + a + b + a + "barrier at=t.py:9 open; hung";
  const std::string rank_1 =
      groups + b + a + a + b + "all_reduce g=b n=4 at=t.py:5 thread=1 open; " + a + "hung";
  for (const auto& job : {std::vector{rank_0, rank_1}, std::vector{rank_1, rank_0}}) {
    const Report report = verify(program(job));
    ASSERT_FALSE(report.findings.empty());
    EXPECT_TRUE(report.findings[0].culprits.empty()) << report.findings[0].message;
  }
}

// Rank 1 synchronises a micro-batch too early, or leaves out the metric.
TEST(Blocking, ACallMadeOnceMoreMayStandForOneLeftOut) {
  const std::string step = "all_reduce n=36 at=a.py:2; all_reduce n=1 at=a.py:5; ";
  const std::string others =
      step + "all_reduce n=36 at=a.py:2; all_reduce n=1 at=a.py:5 open; hung";
  const Report report = verify(program(
      {others, step + "all_reduce n=36 at=a.py:2; all_reduce n=36 at=a.py:2 open; cut", others}));
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].culprits, std::vector<trace::Rank>{trace::Rank(1)});
  EXPECT_THAT(report.findings[0].why, HasSubstr("or it made the one before it once more"));
}

TEST(Blocking, OfTwoNewOperationsTheMoreCommonIsNoMoreRight) {
  const std::string logs = "all_reduce n=8 at=a.py:2; all_reduce n=1 at=a.py:5 open; hung";
  const std::string evaluates = "all_reduce n=8 at=a.py:2; all_gather n=3 at=a.py:9 open; hung";
  EXPECT_EQ(judge({logs, evaluates}),
            "op-mismatch error proven group=world seq=1\nverdict findings");
  EXPECT_THAT(judge({logs, evaluates, logs}), HasSubstr("culprits=1"));
}

// Two pairs that exchange as many messages as their data need. Rank 2 ends a step before all
// others.
TEST(Blocking, TheStepsInWhichOthersEndTellWhoEndedEarly) {
  const auto rank = [](bool sends, int peer, int steps) {
    std::string out;
    for (int step = 0; step < steps; ++step)
      out += fmt::format("{} peer={} n=4 step={}; ", sends ? "send" : "recv", peer, step);
    return out;
  };
  EXPECT_THAT(
      judge({rank(true, 1, 3) + "clean", rank(false, 0, 3) + "clean", rank(true, 3, 2) + "clean",
             rank(false, 2, 2) + "recv peer=2 n=4 step=2 open; hung"}),
      HasSubstr("unequal-iterations error proven culprits=2"));
}

// Nobody ever called in the group before; those who wait for rank 2 are not witnesses against it.
TEST(Blocking, TheFirstCallOfAGroupMayBeOneTooMany) {
  const std::string pair = "group pair 2,3; ";
  const std::string round = "all_reduce g=pair n=4; all_reduce g=pair n=4; ";
  EXPECT_THAT(judge({"clean", "clean", pair + round + round + "all_reduce n=1 open; hung",
                     pair + round + round + "all_reduce g=pair n=4 open; hung"}),
              HasSubstr("extra-collective error proven culprits=2"));
}

// The first barrier of the job: rank 3 stopped, and rank 0 alone came to it, as its tensor group
// has no part in what the others wait for.
TEST(Blocking, TheFirstCallOfAGroupIsNotTooManyWhereARankStopped) {
  const std::string own = "group a 0; ", pair = "group b 1,2,3; ";
  const std::string round = "all_reduce g=b n=4; ";
  EXPECT_THAT(judge({own + "barrier open; hung", pair + round + "all_reduce g=b n=4 open; hung",
                     pair + round + "all_reduce g=b n=4 open; hung", pair + round + "hung"}),
              HasSubstr("host-stall error proven culprits=3"));
}

// A trainer and the first of two rollout workers run different programs: where these diverge, no
// rank does anything unusual.
TEST(Blocking, RanksOfDifferentRolesAreNotCompared) {
  const std::string train = "group train 0,1 trainers; ";
  const std::string rollout = "group rollout 2,3 workers; ";
  const std::string sync = "group sync 0,2,3; ";
  EXPECT_THAT(
      judge({train + sync + "all_reduce g=train n=8; broadcast g=sync n=8 root=0 open; hung",
             train + "all_reduce g=train n=8; all_reduce g=train n=8 open; hung",
             rollout + sync + "all_reduce g=rollout n=4; broadcast g=sync n=8 root=0 open; hung",
             rollout + sync + "all_reduce g=rollout n=4; gather g=rollout n=2 root=2 open; hung"}),
      Not(HasSubstr("culprits=0")));
}

// Rank 0 leaves out the last receive of step 2 and goes on to step 3: rank 1 still stands in
// step 2. Steps have as many rounds as their texts need, so that the past predicts nothing.
TEST(Blocking, ARankThatWentOnToTheNextStepLeftOutTheMessage) {
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

}  // namespace
}  // namespace lockstep::verify
