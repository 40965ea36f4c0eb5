// NCCL's jobs that hung, of which only the issue of calls was recorded: in which call a rank stands
// is not known, so that mostly nothing shows who is late. Unless the calls themselves tell.
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
using ::testing::StartsWith;

// Two stages of two replicas: ranks 0 and 1 send to 2 and 3, which reduce among each other, too.
class Stage {
 public:
  explicit Stage(int rank) : peer_((rank + 2) % 4), sends_(rank < 2) {
    text_ = fmt::format("backend nccl; group dp{0} {1},{2}; group pp{3} {3},{4}; ", rank / 2,
                        rank / 2 * 2, rank / 2 * 2 + 1, rank % 2, rank % 2 + 2);
    reduce_ = fmt::format("all_reduce g=dp{} n=8 async open; ", rank / 2);
    group_ = fmt::format("pp{}", rank % 2);
  }
  Stage& message(bool forth) {
    text_ += fmt::format("{} peer={} n=4 g={} async open; ", forth == sends_ ? "send" : "recv",
                         peer_, group_);
    return *this;
  }
  Stage& reduce() {
    text_ += reduce_;
    return *this;
  }
  Stage& rounds(int n) {
    for (int i = 0; i < n; ++i) message(true).message(false).reduce();
    return *this;
  }
  Stage& barrier() {
    text_ += "barrier async open; ";
    return *this;
  }
  std::string hung() const { return text_ + "hung"; }

 private:
  int peer_;
  bool sends_;
  std::string text_, reduce_, group_;
};

std::vector<std::string> alike(int rounds) {
  std::vector<std::string> out;
  for (int r = 0; r < 4; ++r) out.push_back(Stage(r).rounds(rounds).hung());
  return out;
}

TEST(IssuedAlone, NothingShowsWhoIsLate) { EXPECT_EQ(judge(alike(3)), "verdict inconclusive"); }

// The others made two rounds since then, so that they do not come to it any more. Those of the
// other stage may stand in their newest call.
TEST(IssuedAlone, ABarrierOfOneRankIsNoneThatTheOthersComeTo) {
  std::vector<std::string> ranks = alike(3);
  ranks[0] = Stage(0).rounds(1).barrier().rounds(2).hung();
  EXPECT_THAT(judge(ranks), StartsWith("extra-collective error observed culprits=0 group=world"));
  // They made the rest of a round only, and may make the two in another order.
  ranks[0] = Stage(0).rounds(2).barrier().rounds(1).hung();
  EXPECT_EQ(judge(ranks), "verdict inconclusive");
}

// Rank 2's message of the second round pairs with the receive of the first one, and rank 0 stands
// in a receive that its trace shows as answered.
TEST(IssuedAlone, AMessageLeftOutThatItsPeerPosted) {
  std::vector<std::string> ranks = alike(1);
  ranks[2] = Stage(2).message(true).reduce().rounds(1).hung();
  ranks[3] = Stage(3).rounds(2).hung();
  const std::string said = judge(ranks);
  EXPECT_THAT(said, StartsWith("p2p-unmatched error observed culprits=2"));
  // One cause is one finding: that ranks 0 and 1 do not go on follows.
  EXPECT_THAT(said, Not(HasSubstr("host-stall")));
}

// The look-alike: neither side posts the message, as where a batch asks for none.
TEST(IssuedAlone, AMessageThatBothSidesLeaveOutIsNoFault) {
  std::vector<std::string> ranks = alike(1);
  ranks[0] = Stage(0).message(true).reduce().hung();
  ranks[2] = Stage(2).message(true).reduce().rounds(1).hung();
  ranks[3] = Stage(3).rounds(2).hung();
  EXPECT_THAT(judge(ranks), Not(HasSubstr("culprits=2")));
}

// The same where a round ends with several calls that are alike.
TEST(IssuedAlone, AMessageLeftOutOfARoundThatEndsWithARowOfCalls) {
  const auto stage = [](int rank, bool skips) {
    Stage out(rank);
    for (int round = 0; round < 3; ++round) {
      out.message(true);
      if (!skips || round != 1) out.message(false);
      out.message(false).reduce().reduce();
    }
    return out.hung();
  };
  const auto ranks = [&](std::vector<int> skipping) {
    std::vector<std::string> out;
    for (int r = 0; r < 4; ++r)
      out.push_back(stage(r, std::find(skipping.begin(), skipping.end(), r) != skipping.end()));
    return judge(out);
  };
  EXPECT_THAT(ranks({2}), StartsWith("p2p-unmatched error observed culprits=2"));
  // The look-alike: neither side posts it.
  EXPECT_EQ(ranks({0, 2}), "verdict inconclusive");
}

// Three stages of two replicas, with two micro-batches. That a stage forwards and receives in
// turn in a first round does not show that it was to go on so.
TEST(IssuedAlone, AStageThatStopsAfterARoundLeftNoMessageOut) {
  const auto rank = [](int r, const std::string& calls) {
    const int replica = r % 2, stage = r / 2;
    std::string out =
        fmt::format("backend nccl; group dp{0} {1},{2}; group pp{3} {3},{4},{5}; ", stage,
                    2 * stage, 2 * stage + 1, replica, replica + 2, replica + 4);
    for (const char c : calls) {
      if (c == '+') {
        out += fmt::format("all_reduce g=dp{} n=8 async open; ", stage);
        continue;
      }
      const bool next = c == '>' || c == 'n';  // sent to the next stage, or received from it
      out += fmt::format("{} peer={} n=4 g=pp{} async open; ",
                         c == '>' || c == 'p' ? "send" : "recv", next ? r + 2 : r - 2, replica);
    }
    return out + "hung";
  };
  const std::string first = ">>nn+", middle = "<><>npnp+", last = "<<pp+";
  const auto job = [&](const std::string& of_one) {
    return judge({rank(0, first + first), rank(1, of_one), rank(2, middle), rank(3, middle),
                  rank(4, last + last), rank(5, last + last)});
  };
  // Rank 1 left out a receive of the first round.
  EXPECT_THAT(job(">>n+" + first), StartsWith("p2p-unmatched error observed culprits=1 group=pp1"));
  // The look-alike: nothing was left out, and nothing shows where the middle stages stand.
  EXPECT_EQ(job(first + first), "verdict inconclusive");
}

// Most of its kind went on to another call after the last one that all made.
TEST(IssuedAlone, ARankThatStandsInACallOfItsOwnMadeItAlone) {
  const auto layers = [](int rank, const std::string& more) {
    return fmt::format("backend nccl; group dp{0} {1}; ", rank / 3, rank < 3 ? "0,1,2" : "3,4,5") +
           repeated(fmt::format("all_reduce g=dp{} n=8 async open; ", rank / 3), 3) +
           "barrier async open; " + more + "hung";
  };
  const auto step = [](int rank) {
    return fmt::format("all_gather g=dp{} n=8 async open; ", rank / 3);
  };
  std::vector<std::string> ranks;
  for (int r = 0; r < 6; ++r) ranks.push_back(layers(r, r == 0 ? "barrier async open; " : step(r)));
  EXPECT_THAT(judge(ranks),
              StartsWith("extra-collective error observed culprits=0 group=world seq=1"));
}

// Rank 1 issued the last reduction of a step after the norm. In a replay of slow devices the others
// do not come to the norm, which they did issue.
TEST(IssuedAlone, RanksThatIssuedACallAreNotSaidToLackIt) {
  const auto rank = [](int r, bool swaps) {
    std::string out =
        fmt::format("backend nccl; group dp{0} {1}; ", r / 4, r < 4 ? "0,1,2,3" : "4,5,6,7");
    for (int step = 0; step < 4; ++step) {
      const auto reduce = [&](int n) {
        return fmt::format("all_reduce g=dp{} n={} step={} async open; ", r / 4, n, step);
      };
      const std::string norm = fmt::format("all_reduce n=1 step={} async open; ", step);
      out += reduce(8) + (swaps && step == 1 ? norm + reduce(4) : reduce(4) + norm);
    }
    return out + "hung";
  };
  std::vector<std::string> ranks, usual;
  for (int r = 0; r < 8; ++r) {
    ranks.push_back(rank(r, r == 1));
    usual.push_back(rank(r, false));
  }
  EXPECT_THAT(judge(ranks), StartsWith("cross-group-deadlock error observed culprits=1 "));
  EXPECT_EQ(judge(usual), "verdict inconclusive");
}

// Rank 0 issued the norm of its second step after the messages of the third, for which rank 1 posts
// its side after the norm.
TEST(IssuedAlone, ANormAfterTheMessagesOfTheNextStep) {
  const auto rank = [](int r, const std::string& calls) {
    std::string out = "backend nccl; group pp 0,1; ";
    for (const char c : calls) {
      out += c == 'n' ? "all_reduce n=1 async open; "
                      : fmt::format("{} peer={} n=4 g=pp async open; ",
                                    (c == '>') == (r == 0) ? "send" : "recv", 1 - r);
    }
    return out + "hung";
  };
  EXPECT_THAT(judge({rank(0, "><n><n><n><><nn"), rank(1, "><n><n><n><n><n")}),
              StartsWith("missing-collective error observed culprits=0 group=world seq=3"));
  // The look-alike: in this order, nothing keeps the calls from running.
  EXPECT_EQ(judge({rank(0, "><n><n><n><n><n"), rank(1, "><n><n><n><n><n")}),
            "verdict inconclusive");
}

// The two ranks pair with each other's calls up to the last one of the rank that made one more.
TEST(IssuedAlone, ACallMadeTwiceByOneOfTwoRanks) {
  const auto rank = [](const std::string& calls) {
    std::string out = "backend nccl; group dp 0,1; broadcast n=9 async open; ";
    for (const char c : calls)
      out += c == 'g' ? "all_reduce g=dp n=8 async open; " : "all_reduce n=1 async open; ";
    return out + "hung";
  };
  EXPECT_THAT(judge({rank("ggnggnggnggn"), rank("ggnggnnggnggn")}),
              StartsWith("extra-collective error observed culprits=1 group=world seq=3"));
  // The look-alike: rank 0 made a round less.
  EXPECT_THAT(judge({rank("ggnggnggn"), rank("ggnggnggnggn")}),
              StartsWith("host-stall error observed culprits=0"));
}

}  // namespace
}  // namespace lockstep::verify
