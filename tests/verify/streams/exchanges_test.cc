// Messages counted round by round: who posted too few, or a collective too many.
#include "verify/streams/exchanges.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/verify/program.h"

namespace lockstep::verify {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A pipeline of three stages over NCCL: its rounds have the micro-batches given, and end with an
// all_reduce.
class Stages {
 public:
  explicit Stages(const std::vector<int>& rounds) {
    for (const int n : rounds) {
      add(0, repeated("send peer=1 n=4; ", n) + repeated("recv peer=1 n=4; ", n));
      add(1, repeated("recv peer=0 n=4; send peer=2 n=4; ", n) +
                 repeated("recv peer=2 n=4; send peer=0 n=4; ", n));
      add(2, repeated("recv peer=1 n=4; ", n) + repeated("send peer=1 n=4; ", n));
      for (int r = 0; r < 3; ++r) add(r, kEnd);
    }
  }

  void add(int rank, const std::string& calls) { ranks_[static_cast<std::size_t>(rank)] += calls; }
  std::string judge(const std::string& end) const {
    std::vector<std::string> out;
    for (const std::string& rank : ranks_) out.push_back("backend nccl; " + rank + end);
    return verify::judge(out);
  }

  static constexpr const char* kEnd = "all_reduce n=1; ";
  static constexpr const char* kWaits = "all_reduce n=1 open; ";

 private:
  std::string ranks_[3];
};

// Rank 1 posts one receive less than rank 2 sends, and everything else three times.
TEST(Exchanges, TheProportionOfARanksMessagesTells) {
  Stages job({2});
  job.add(0, repeated("send peer=1 n=4; ", 3) + repeated("recv peer=1 n=4; ", 3) + Stages::kWaits);
  job.add(1, repeated("recv peer=0 n=4; send peer=2 n=4; ", 3) +
                 repeated("recv peer=2 n=4; send peer=0 n=4; ", 2) + "send peer=0 n=4; " +
                 Stages::kWaits + "recv peer=0 n=4 open; ");
  job.add(2, repeated("recv peer=1 n=4; ", 3) + repeated("send peer=1 n=4; ", 2) +
                 "send peer=1 n=4 open; " + Stages::kWaits);
  EXPECT_THAT(job.judge("hung"), HasSubstr("p2p-unmatched error observed culprits=1"));
}

// A rank may send to itself, and a damaged dump may say that it did. Such a message is no pair's.
TEST(Exchanges, AMessageToItselfIsNoPairs) {
  Stages job({2, 2});
  job.add(0, std::string("recv peer=0 n=4 open; ") + Stages::kWaits);
  job.add(1, repeated("recv peer=0 n=4 open; ", 1) + Stages::kWaits);
  job.add(2, Stages::kWaits);
  EXPECT_THAT(job.judge("hung"), HasSubstr("verdict findings"));
}

// Rank 0 has a micro-batch less, and its messages are in the usual proportion; but rank 2 agrees
// with rank 1.
TEST(Exchanges, WhoeverAgreesWithFewerIsOdd) {
  Stages job({2});
  job.add(0, repeated("send peer=1 n=4; ", 3) + repeated("recv peer=1 n=4; ", 3) + Stages::kWaits);
  job.add(1, repeated("recv peer=0 n=4; send peer=2 n=4; ", 3) + "recv peer=0 n=4 open; " +
                 "send peer=2 n=4 open; " +
                 repeated("recv peer=2 n=4 open; send peer=0 n=4 open; ", 4) + Stages::kWaits);
  job.add(2, repeated("recv peer=1 n=4; ", 3) + "recv peer=1 n=4 open; " +
                 repeated("send peer=1 n=4 open; ", 4) + Stages::kWaits);
  EXPECT_THAT(job.judge("hung"), HasSubstr("culprits=0"));
}

// As many micro-batches as the data need are not a fault.
TEST(Exchanges, RoundsMayDiffer) {
  EXPECT_EQ(Stages({2, 3, 1, 4}).judge("clean"), "verdict clean");
}

// Between two ranks of which each is consistent in itself, nothing tells.
TEST(Exchanges, NobodyOfTwoIsOdd) {
  const std::string round = "send peer=1 n=4; send peer=1 n=4; all_reduce n=1; ";
  const std::string other = "recv peer=0 n=4; recv peer=0 n=4; all_reduce n=1; ";
  EXPECT_THAT(judge({"backend nccl; " + round +
                         "send peer=1 n=4; send peer=1 n=4 open; all_reduce n=1 open; hung",
                     "backend nccl; " + other + "recv peer=0 n=4; all_reduce n=1 open; hung"}),
              Not(HasSubstr("culprits=0 ")));
}

// A checkpoint lies between two barriers, and rank 2 leaves out the second one. Where it then posts
// its next messages, the others post none; they agree on that, and rank 2 is odd.
TEST(Exchanges, RanksThatPostNothingAgreeOnThat) {
  const auto rank = [](const std::string& messages, const std::string& second) {
    std::string open = messages;
    for (std::size_t at = 0; (at = open.find(';', at)) != std::string::npos; at += 6)
      open.insert(at, " open");
    return "backend nccl; " + messages + "barrier; barrier; " + messages + "barrier; " + second +
           open + "barrier open; " + second + "hung";
  };
  const std::string waits = "barrier open; ";
  const std::string said =
      judge({rank("send peer=1 n=4; send peer=1 n=4; recv peer=1 n=4; recv peer=1 n=4; ", waits),
             rank("recv peer=0 n=4; send peer=2 n=4; recv peer=0 n=4; send peer=2 n=4; "
                  "recv peer=2 n=4; send peer=0 n=4; recv peer=2 n=4; send peer=0 n=4; ",
                  waits),
             rank("recv peer=1 n=4; send peer=1 n=4; recv peer=1 n=4; send peer=1 n=4; ", "")});
  EXPECT_THAT(said, HasSubstr("culprits=2 ")) << said;
  EXPECT_THAT(said, Not(HasSubstr("culprits=1 "))) << said;
}

// Rank 2 leaves out the first collective, so that two rounds are one: its pairs disagree, and the
// other pair shows that no messages cross the collective on purpose.
TEST(Exchanges, APairThatFitsShowsThatTheFirstRoundIsWhole) {
  const auto stage = [&](int rank, bool leaves_out) {
    const auto round = [&](const char* open) {
      std::string out;
      if (rank > 0) out += fmt::format("recv peer={} n=4{}; ", rank - 1, open);
      if (rank < 3) out += fmt::format("send peer={} n=4{}; ", rank + 1, open);
      if (rank < 3) out += fmt::format("recv peer={} n=4{}; ", rank + 1, open);
      if (rank > 0) out += fmt::format("send peer={} n=4{}; ", rank - 1, open);
      return out;
    };
    return "backend nccl; " + round("") + (leaves_out ? round(" open") : "") +
           "all_reduce n=1 open; hung";
  };
  EXPECT_THAT(judge({stage(0, false), stage(1, false), stage(2, true), stage(3, false)}),
              HasSubstr("missing-collective error observed culprits=2 group=world seq=0"));
}

// Rank 0 sends once more and waits, so that it does not come to the end of the round. The others
// have ended it.
TEST(Exchanges, ARankMayHavePostedTooManyInARoundThatItDoesNotEnd) {
  Stages job({2, 2});
  job.add(0, "send peer=1 n=4; send peer=1 n=4; send peer=1 n=4 open; ");
  job.add(1, repeated("recv peer=0 n=4; send peer=2 n=4; ", 2) + Stages::kWaits);
  job.add(2, repeated("recv peer=1 n=4; ", 2) + Stages::kWaits);
  const std::string said = job.judge("hung");
  EXPECT_THAT(said, HasSubstr("p2p-unmatched error")) << said;
  EXPECT_THAT(said, HasSubstr("culprits=0 ")) << said;
}

// Between two ranks, the one that ended the round may have issued its collective too early.
TEST(Exchanges, TheOneOfTwoThatDoesNotEndTheRoundNeedNotBeOdd) {
  const std::string said =
      judge({"backend nccl; send peer=1 n=4; all_reduce n=1; send peer=1 n=4; all_reduce n=1; "
             "send peer=1 n=4 open; hung",
             "backend nccl; recv peer=0 n=4; all_reduce n=1; recv peer=0 n=4; all_reduce n=1; "
             "all_reduce n=1 open; hung"});
  EXPECT_THAT(said, Not(HasSubstr("p2p-unmatched error observed culprits=0 "))) << said;
}

// Without collectives, all is one round. The last stage takes and gives one micro-batch more than
// its peer, which fits the other one. Where that peer has merely stopped, it lacks messages of
// both.
TEST(Exchanges, WithoutCollectivesTheRankWithMoreThanItsPeersIsOdd) {
  const auto stage = [](int rank, int posted, int forwards_done) {
    std::string out = "backend nccl; ";
    const auto batches = [&](int from, int to, int done) {
      for (int i = 0; i < posted; ++i) {
        const char* const open = i < done ? "" : " open";
        if (from >= 0 && from < 3) out += fmt::format("recv peer={} n=4{}; ", from, open);
        if (to >= 0 && to < 3) out += fmt::format("send peer={} n=4{}; ", to, open);
      }
    };
    batches(rank - 1, rank + 1, forwards_done);
    batches(rank + 1, rank - 1, 0);
    return out + "hung";
  };
  EXPECT_THAT(judge({stage(0, 3, 3), stage(1, 3, 3), stage(2, 4, 3)}), HasSubstr("culprits=2 "));
  EXPECT_THAT(judge({stage(0, 4, 3), stage(1, 3, 3), stage(2, 4, 3)}),
              Not(HasSubstr("culprits=2 ")));
}

// Rank 1 has more than rank 0 in one round, and more than rank 2 in the next one.
TEST(Exchanges, WhatIsMoreInDifferentRoundsSinglesOutNobody) {
  const std::string start = "backend nccl; all_reduce n=1; ", next = "all_reduce n=1 open; ";
  EXPECT_THAT(judge({start + "recv peer=3 n=4; hung",
                     start + "send peer=0 n=4 open; recv peer=2 n=4; " + next +
                         "send peer=2 n=4 open; hung",
                     start + "send peer=1 n=4; " + next + "send peer=3 n=4 open; hung",
                     start + "send peer=0 n=4; " + next + "recv peer=2 n=4 open; hung"}),
              Not(HasSubstr("p2p-unmatched error observed culprits=1 ")));
}

// Each rank posts its receive for the next round before the round ends: messages cross the
// collective on purpose. Rank 1 then stops.
TEST(Exchanges, MessagesThatCrossACollectiveOnPurposeAccuseNobody) {
  const auto rank = [](int peer, int rounds, const std::string& end) {
    const std::string receive = fmt::format("recv peer={} n=4 async; ", peer);
    const std::string send = fmt::format("send peer={} n=4 async; ", peer);
    std::string out = "backend nccl; " + receive;
    for (int i = 0; i < rounds; ++i) out += send + receive + "all_reduce n=1; ";
    return out + end;
  };
  const std::string waits =
      "send peer=1 n=4 async open; recv peer=1 n=4 async open; "
      "all_reduce n=1 open; hung";
  const std::string said = judge({rank(1, 3, waits), rank(0, 3, "hung")});
  EXPECT_THAT(said, Not(HasSubstr("p2p-unmatched")));
  EXPECT_THAT(said, Not(HasSubstr("extra-collective")));
}

// Rank 1 issues a collective within a round, which looks like the one at its end.
TEST(Exchanges, TwoRoundsThatAreOneOfThePartnerAreACollectiveTooMany) {
  const std::string sends = "send peer=1 n=4; recv peer=1 n=4; ";
  const std::string receives = "recv peer=0 n=4; send peer=0 n=4; ";
  const std::string end = "all_reduce n=1; ";
  const std::string round_of_0 = sends + sends + "send peer=1 n=4; " + end;
  const std::string round_of_1 = receives + receives + "recv peer=0 n=4; " + end;
  const std::string said = judge({"backend nccl; " + round_of_0 + round_of_0 + round_of_0 + "clean",
                                  "backend nccl; " + round_of_1 + receives + "recv peer=0 n=4; " +
                                      end + "send peer=0 n=4; recv peer=0 n=4; " + end +
                                      round_of_1 + "all_reduce n=1 open; hung"});
  EXPECT_THAT(said, HasSubstr("extra-collective error observed culprits=1 group=world seq=1"));
}

// An encoder gets a gradient for each activation that it sends. In the first round, rank 0 posts
// one receive from rank 2 too few, so that a gradient stays behind.
TEST(Exchanges, ActivationsAreAnsweredByGradients) {
  const std::string start = "backend nccl; group llm 1,2,3; ";
  const std::string end = "all_reduce n=1; ", waits = "all_reduce n=1 open; hung";
  const auto model = [&](int images, const std::string& last) {
    return repeated("recv peer=0 n=4; ", images) + "all_reduce g=llm n=8; " +
           repeated("send peer=0 n=4; ", images - 1) + "send peer=0 n=4" + last + "; " + end;
  };
  const auto judged = [&](int answers, const std::string& state) {
    const std::string more =
        "recv peer=0 n=4; all_reduce g=llm n=8 open; send peer=0 n=4; send peer=0 n=4; " + waits;
    const std::string twice = "send peer=3 n=4; send peer=3 n=4; ";
    return judge({start + "send peer=1 n=4; send peer=2 n=4; send peer=2 n=4; " + twice +
                      "recv peer=1 n=4; " + repeated("recv peer=2 n=4; ", answers) +
                      repeated("recv peer=3 n=4; ", 2) + end +
                      "send peer=1 n=4; send peer=1 n=4; send peer=2 n=4 open; send peer=3 n=4; "
                      "recv peer=1 n=4; recv peer=1 n=4; "
                      "recv peer=2 n=4 open; recv peer=3 n=4; " +
                      waits,
                  start + model(1, "") + "recv peer=0 n=4; " + more,
                  start + model(2, state) + "hung", start + model(2, "") + more});
  };
  EXPECT_THAT(judged(1, " open"), HasSubstr("p2p-unmatched error observed culprits=0"));
  EXPECT_THAT(judged(2, ""), Not(HasSubstr("culprits=0")));
}

// Dumps of two ranks whose numbers are far from each other: what they hold is looked through, not
// each number between. With that, fifty pairs of ranks would take an hour.
TEST(Exchanges, RoundsFarFromEachOtherAreNoWork) {
  constexpr int kPairs = 50;
  std::vector<std::string> ranks;
  for (int r = 0; r < 2 * kPairs; ++r) {
    const int peer = r ^ 1;
    std::string text = fmt::format("backend nccl; group pair{} {},{}; ", r / 2, std::min(r, peer),
                                   std::max(r, peer));
    for (int round = 0; round < 4; ++round)
      text += fmt::format("{} peer={} n=4; all_reduce g=pair{} n=1; ", r < peer ? "send" : "recv",
                          peer, r / 2);
    ranks.push_back(text + "hung");
  }
  trace::Run run = program(ranks);
  for (std::size_t r = 0; r < run.ranks.size(); ++r) {
    run.ranks[r].dropped = 1;
    if (r % 2 == 0) continue;
    for (trace::Call& call : run.ranks[r].calls.own()) call.seq += 4'000'000'000;
  }
  EXPECT_FALSE(find_uneven_exchange(run));
}

}  // namespace
}  // namespace lockstep::verify
