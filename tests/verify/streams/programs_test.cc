// Where two members of a group part, the programs of other ranks, their own past and their later
// rounds tell which of the two does the unusual.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/verify/program.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Two pairs of experts and the group of all; `exchanges` all-to-alls in the first step.
std::string expert_rank(const std::string& pair, const std::string& members, int exchanges) {
  std::string out = "backend nccl; group " + pair + " " + members + "; ";
  for (int i = 0; i < exchanges; ++i) {
    out += "all_to_all_single g=" + pair + " n=8 async" +
           (exchanges < 4 || pair == "ep0" || i < 3 ? "" : " open") + "; ";
  }
  return out + "all_reduce n=64 async open; hung";
}

TEST(Programs, OtherPairsTellWhichMemberLeftOutACall) {
  const std::vector<std::string> ranks = {
      expert_rank("ep0", "0,1", 4), expert_rank("ep0", "0,1", 4), expert_rank("ep1", "2,3", 4),
      expert_rank("ep1", "2,3", 3)};
  EXPECT_THAT(summary(verify(program(ranks))),
              StartsWith("missing-collective error observed culprits=3 group=ep1 seq=3"));
}

TEST(Programs, OtherPairsTellWhichMemberMadeOneTooMany) {
  // The same difference between ranks 2 and 3; here the others make three.
  const std::vector<std::string> ranks = {
      expert_rank("ep0", "0,1", 3), expert_rank("ep0", "0,1", 3), expert_rank("ep1", "2,3", 4),
      expert_rank("ep1", "2,3", 3)};
  EXPECT_THAT(summary(verify(program(ranks))),
              StartsWith("extra-collective error observed culprits=2 group=ep1 seq=3"));
}

TEST(Programs, WithoutOtherRanksAndRoundsNobodyIsNamed) {
  const std::vector<std::string> ranks = {"group a 0,1; all_reduce g=a n=4 open; hung",
                                          "group a 0,1; all_reduce n=8 open; hung"};
  const Report report = verify(program(ranks));
  EXPECT_THAT(summary(report), StartsWith("cross-group-deadlock error proven group="));
}

// Four pairs; the ranks' calls in their pair after one of all: `c` complete, `w` waits.
Report pairs_that_end(const std::vector<std::string>& calls) {
  std::vector<std::string> ranks;
  for (std::size_t r = 0; r < calls.size(); ++r) {
    const std::string pair = fmt::format("p{}", r / 2);
    std::string rank = fmt::format("backend nccl; group {} {},{}; all_reduce n=8 step=0; ", pair,
                                   r / 2 * 2, r / 2 * 2 + 1);
    for (const char c : calls[r]) {
      rank += "all_reduce n=8 step=0 g=" + pair + (c == 'w' ? " open" : "") + "; ";
    }
    ranks.push_back(rank + (calls[r].ends_with('w') ? "hung" : "clean"));
  }
  return verify(program(ranks));
}

TEST(Programs, OtherPairsTellWhetherARankEndedTooEarly) {
  EXPECT_THAT(summary(pairs_that_end({"c", "c", "c", "c", "", "w", "c", "c"})),
              StartsWith("missing-collective error observed culprits=4 group=p2 seq=0"));
  EXPECT_THAT(summary(pairs_that_end({"c", "c", "c", "c", "c", "cw", "c", "c"})),
              StartsWith("extra-collective error observed culprits=5 group=p2 seq=1"));
}

// Issue lines alone: nothing completes.
std::string issues(const std::string& calls) {
  std::string out = "backend nccl; group a 0,1; ";
  for (const char c : calls) {
    out += c == 'a' ? "all_reduce g=a n=4 async open; " : "all_reduce n=8 async open; ";
  }
  return out + "hung";
}

TEST(Programs, ARankThatSeemsToHangWhereAnotherMadeOneCallTooMany) {
  const Report report = verify(program({issues("aawaawaaw"), issues("aawaawaaaw")}));
  ASSERT_FALSE(report.findings.empty());
  EXPECT_THAT(summary(report), StartsWith("extra-collective error observed culprits=1 group=a"));
}

TEST(Programs, ARankThatJustStopsHangs) {
  EXPECT_THAT(summary(verify(program({issues("aawaawa"), issues("aawaawaa")}))),
              StartsWith("host-stall error observed culprits=0 group=a"));
}

TEST(Programs, LaterRoundsTellWhatTheFirstOneLacks) {
  const auto rank = [](bool skips) {
    std::string out = "backend nccl; ";
    for (int round = 0; round < 4; ++round) {
      out += "all_reduce n=4 async; ";
      if (round > 0 || !skips) {
        out += std::string("all_reduce n=8 async") + (round == 3 && !skips ? " open; " : "; ");
      }
    }
    return out + "clean";
  };
  EXPECT_THAT(summary(verify(program({rank(false), rank(true)}))),
              StartsWith("missing-collective error observed culprits=1 group=world seq=1"));
}

TEST(Programs, OneFaultOfATensorParallelGroupIsOneFinding) {
  // Ranks 0 and 1 are one replica, 2 and 3 and 4 and 5 two others; both members leave it out.
  std::vector<std::string> ranks;
  for (int r = 0; r < 6; ++r) {
    const std::string dp = r % 2 == 0 ? "dp0" : "dp1";
    std::string out = "backend nccl; group " + dp + (r % 2 == 0 ? " 0,2,4; " : " 1,3,5; ");
    for (int step = 0; step < 3; ++step) {
      const bool last = step == 2;
      const std::string state = last ? " async open; " : " async; ";
      const std::string at = fmt::format(" step={}", step);
      if (!last || r > 1) out += "all_reduce g=" + dp + " n=4" + at + state;
      out += "all_reduce n=1" + at + state;
    }
    ranks.push_back(out + "hung");
  }
  const Report report = verify(program(ranks));
  ASSERT_EQ(report.findings.size(), 1u);
  EXPECT_THAT(report.findings[0].culprits, ::testing::ElementsAre(trace::Rank{0}, trace::Rank{1}));
  EXPECT_THAT(report.findings[0].message, HasSubstr("the same in group dp1: rank 1"));
}

TEST(Programs, NamesOfParametersDoNotCompareBetweenGroups) {
  // Two replicas of two ranks. One leaves out the middle one of three equal calls, each of its
  // ranks in a group of its own: the other row of ranks votes one to one.
  const auto rank = [](int r, bool skips) {
    const std::string dp = r % 2 == 0 ? "dp0" : "dp1";
    const auto call = [&](const std::string& what) {
      return "all_reduce n=4 g=" + dp + " what=" + what;
    };
    std::string out = "group " + dp + (r % 2 == 0 ? " 0,2; " : " 1,3; ");
    for (int round = 0; round < 3; ++round) {
      out += call("a") + "; " + call("b") + "; " + call("c") + "; all_reduce n=8; ";
    }
    out += call("a") + "; ";
    return out + (skips ? call("c") + "; all_reduce n=8 open; hung"
                        : call("b") + "; " + call("c") + " open; hung");
  };
  EXPECT_THAT(
      summary(verify(program({rank(0, true), rank(1, true), rank(2, false), rank(3, false)}))),
      StartsWith("missing-collective error proven culprits=0,1 group=dp0 seq=10"));
}

TEST(Programs, LaterRoundsTellWhatTheFirstOneHasTooMuch) {
  // The added call looks like the one before it, from another line.
  const auto rank = [](bool adds) {
    std::string out = "backend nccl; all_reduce n=2 async; ";
    for (int round = 0; round < 4; ++round) {
      out += "all_reduce n=4 async at=a.py:1; ";
      if (round == 0 && adds) out += "all_reduce n=4 async at=log.py:7; ";
      out += "all_reduce n=4 async at=a.py:2; ";
      out +=
          std::string("all_reduce n=4 async at=a.py:3") + (round == 3 && adds ? " open; " : "; ");
    }
    return out + (adds ? "hung" : "clean");
  };
  EXPECT_THAT(summary(verify(program({rank(true), rank(false)}))),
              StartsWith("extra-collective error observed culprits=0 group=world"));
}

TEST(Programs, NobodyOfTwoThatNothingTellsApartIsNamed) {
  const auto first_line = [](const std::vector<std::string>& ranks) {
    const std::string all = summary(verify(program(ranks)));
    return all.substr(0, all.find('\n'));
  };
  using testing::HasSubstr;
  using testing::Not;
  // In the first round: a call made twice, or one left out.
  EXPECT_THAT(first_line({"all_reduce n=8; all_reduce n=4 open; hung",
                          "all_reduce n=8; all_reduce n=8 open; hung"}),
              Not(HasSubstr("culprits")));
  // Equal calls, one more on one side.
  const std::string equal = "backend nccl; all_reduce n=4 async; all_reduce n=4 async; ";
  EXPECT_THAT(first_line({equal + "clean", equal + "all_reduce n=4 async open; hung"}),
              testing::AllOf(StartsWith("unequal-iterations"), Not(HasSubstr("culprits"))));
}

TEST(Programs, ThePipelineBesideTellsWhoLeftOutAMessage) {
  // The hosts go on, so both sides of the later messages are there. Rank 1 lacks a receive.
  const auto first = [](int r, bool skips) {
    const std::string peer = std::to_string(r + 2);
    const std::string pp = fmt::format("pp{}", r);
    return fmt::format(
        "backend nccl; group {} {},{}; send g={} n=4 async peer={}; {}all_reduce n=8 async open; "
        "hung",
        pp, r, peer, pp, peer, (skips ? "" : "recv g=" + pp + " n=4 async peer=" + peer + "; "));
  };
  const auto last = [](int r, const std::string& sent) {
    const std::string peer = std::to_string(r - 2);
    const std::string pp = "pp" + peer;
    return fmt::format(
        "backend nccl; group {} {},{}; recv g={} n=4 async peer={}; send g={} n=4 async peer={}{}; "
        "all_reduce n=8 async open; hung",
        pp, peer, r, pp, peer, pp, peer, sent);
  };
  EXPECT_THAT(
      summary(verify(program({first(0, false), first(1, true), last(2, ""), last(3, " open")}))),
      StartsWith("p2p-unmatched error observed culprits=1 group=pp1"));
}

TEST(Programs, RanksMayBeInTheCallThatAllOfItsMembersIssuedLast) {
  // Issue lines alone. Ranks 0 and 1 stopped before the calls in which 2 and 3 wait, or their own
  // last call does not complete.
  const std::string pair = "backend nccl; group a 0,1; ";
  const std::string b = "group b 0,2; ";
  const std::string c = "group c 1,3; ";
  const std::string own = "all_reduce g=a n=4 async open; hung";
  EXPECT_EQ(
      summary(verify(program({pair + b + own, pair + c + own,
                              "backend nccl; " + b + "all_reduce g=b n=4 async open; hung",
                              "backend nccl; " + c + "all_reduce g=c n=4 async open; hung"}))),
      "verdict inconclusive");
}

// Each pair begins with a broadcast from its own first rank. The roots are different ranks, and yet
// the pairs run one program.
TEST(Programs, RootsOfOtherGroupsAreOtherRanks) {
  const auto rank = [](const std::string& pair, const std::string& members, int root,
                       int exchanges) {
    std::string out = fmt::format("backend nccl; group {} {}; broadcast g={} n=2 root={} async; ",
                                  pair, members, pair, root);
    for (int i = 0; i < exchanges; ++i) {
      out += "all_to_all_single g=" + pair + " n=8 async" +
             (exchanges < 4 || pair == "ep0" || i < 3 ? "; " : " open; ");
    }
    return out + "all_reduce n=64 async open; hung";
  };
  const auto of = [&](int usual) {
    return judge({rank("ep0", "0,1", 0, usual), rank("ep0", "0,1", 0, usual),
                  rank("ep1", "2,3", 2, 4), rank("ep1", "2,3", 2, 3)});
  };
  EXPECT_THAT(of(4), StartsWith("missing-collective error observed culprits=3 group=ep1 seq=4"));
  EXPECT_THAT(of(3), StartsWith("extra-collective error observed culprits=2 group=ep1 seq=4"));
}

}  // namespace
}  // namespace lockstep::verify
