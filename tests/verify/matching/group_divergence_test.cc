// Groups about which ranks disagree: members, names, order of creation. Each where it must fire,
// look-alikes where it must not, and where the data cannot tell.
#include "verify/matching/group_divergence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/trace_text.h"
#include "tests/verify/program.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(GroupMembers, AGroupThatNobodyUsed) {
  EXPECT_EQ(judge({"group dp 0,1; barrier; clean", "group dp 0,1; barrier; clean",
                   "group dp 0,1,2; barrier; clean"}),
            "group-divergence error observed culprits=2 group=dp\nverdict findings");
}

TEST(GroupMembers, TheSameRanksInAnotherOrder) {
  EXPECT_EQ(judge({"group dp 0,1,2; barrier; clean", "group dp 0,1,2; barrier; clean",
                   "group dp 2,1,0; barrier; clean"}),
            "group-divergence error observed culprits=2 group=dp\nverdict findings");
}

TEST(GroupMembers, ATieNamesNobody) {
  EXPECT_EQ(judge({"group dp 0,1; barrier; clean", "group dp 0; barrier; clean"}),
            "group-divergence error observed group=dp\nverdict findings");
}

TEST(GroupMembers, GroupsThatOnlySomeRanksKnow) {
  EXPECT_EQ(judge({"group a 0,1; barrier; clean", "group a 0,1; group b 1,2; barrier; clean",
                   "group b 1,2; barrier; clean"}),
            "verdict clean");
}

// split_group counts alike on ranks that make different groups.
TEST(GroupMembers, GroupsWithOneNameAndNoMemberInCommon) {
  const std::string even = "group 1 0,2; all_reduce g=1 n=4; barrier; clean";
  const std::string odd = "group 1 1,3; all_reduce g=1 n=8; all_reduce g=1 n=8; barrier; clean";
  EXPECT_EQ(judge({even, odd, even, odd}), "verdict clean");
}

TEST(GroupMembers, ADefectInOneOfTwoNamesakesNamesIt) {
  const std::string even = "group 1 0,2; all_reduce g=1 n=4; clean";
  const std::string odd = "group 1 1,3; all_reduce g=1 n=8 redop=";
  EXPECT_EQ(judge({even, odd + "sum; clean", even, odd + "max; clean"}),
            "redop-mismatch error observed group=1 [1, 3] seq=0\nverdict findings");
}

TEST(GroupMembers, NamesakesThatARankOutsideKnowsAreOneGroup) {
  EXPECT_THAT(judge({"group 1 0,1; barrier; clean", "group 1 0,1; barrier; clean",
                     "group 1 2,3; barrier; clean", "group 1 0,1; barrier; clean"}),
              HasSubstr("group-divergence error observed culprits=2 group=1"));
}

TEST(GroupOrder, TwoGroupsInOppositeOrders) {
  const std::string usual = "group a 0,1,2; group b 0,1,2; barrier; clean";
  const Report report =
      verify(program({usual, "group b 0,1,2; group a 0,1,2; barrier; clean", usual}));
  EXPECT_EQ(summary(report),
            "group-divergence warning possible culprits=1 group=a\nverdict findings");
  EXPECT_THAT(report.findings[0].message,
              HasSubstr("ranks 0, 2 created group a before group b, but rank 1 created group b "
                        "before group a"));
}

TEST(GroupOrder, OthersBetweenThemChangeNothing) {
  const Report report =
      verify(program({"group a 0,1; group x 0; group b 0,1; barrier; clean",
                      "group b 0,1; group y 1; group z 1; group a 0,1; barrier; clean"}));
  EXPECT_EQ(summary(report), "group-divergence warning possible group=a\nverdict findings");
  EXPECT_THAT(report.findings[0].message, Not(HasSubstr("group x")));
}

TEST(GroupOrder, ACycleInWhichNoTwoRanksShareTwoGroups) {
  const Report report = verify(program({"group a 0,1; group b 0,2; barrier; clean",
                                        "group c 1,2; group a 0,1; barrier; clean",
                                        "group b 0,2; group c 1,2; barrier; clean"}));
  EXPECT_EQ(summary(report), "group-divergence warning possible group=a\nverdict findings");
  EXPECT_THAT(report.findings[0].message,
              HasSubstr("rank 0 created group a before group b, rank 2 created group b before "
                        "group c, but rank 1 created group c before group a"));
}

// use_local_synchronization: only members create. This order suits all: a, b, c.
TEST(GroupOrder, GroupsThatOnlyMembersCreate) {
  EXPECT_EQ(
      judge({"group a 0,1; group b 0,2; barrier; clean", "group a 0,1; group c 1,2; barrier; clean",
             "group b 0,2; group c 1,2; barrier; clean"}),
      "verdict clean");
}

TEST(GroupOrder, TheSameOrderWithGaps) {
  EXPECT_EQ(judge({"group a 0,1,2; group b 0,2; group d 0,1,2; barrier; clean",
                   "group a 0,1,2; group c 1,2; group d 0,1,2; barrier; clean",
                   "group a 0,1,2; group b 0,2; group c 1,2; group d 0,1,2; barrier; clean"}),
            "verdict clean");
}

TEST(GroupOrder, GroupsOfOthersShowNoOrder) {
  EXPECT_EQ(judge({"group a 0,1; group b 2,3; barrier; clean", "group a 0,1; barrier; clean",
                   "group b 2,3; group a 0,1; barrier; clean", "group b 2,3; barrier; clean"}),
            "verdict clean");
}

TEST(GroupOrder, LinesAfterTheFirstCallMayStandAtTheFirstUse) {
  EXPECT_EQ(judge({"barrier; group a 0,1; all_reduce g=a n=4 async; group b 0,1; "
                   "all_reduce g=b n=4 async; barrier; clean",
                   "barrier; group b 0,1; all_reduce g=b n=4 async; group a 0,1; "
                   "all_reduce g=a n=4 async; barrier; clean"}),
            "verdict clean");
}

TEST(GroupOrder, AHangThatNothingElseExplains) {
  const Report report = verify(program({"barrier; hung", "barrier; hung"}));
  EXPECT_THAT(summary(report), HasSubstr("host-stall error"));
  EXPECT_EQ(
      judge({"group a 0,1; group b 0,1; barrier; hung", "group b 0,1; group a 0,1; barrier; hung"}),
      "group-divergence error possible group=a\nverdict findings");
}

TEST(GroupOrder, AHangThatSomethingElseExplains) {
  const std::string found = judge({"group a 0,1; group b 0,1; all_reduce n=4 open; hung",
                                   "group b 0,1; group a 0,1; broadcast n=4 root=0 open; hung"});
  EXPECT_THAT(found, HasSubstr("op-mismatch error proven"));
  EXPECT_THAT(found, HasSubstr("group-divergence warning possible group=a"));
}

TEST(GroupOrder, ARankThatIsMissingOrCutOffLeavesItOpen) {
  EXPECT_EQ(summary(verify(run_of({{0, "group a 0,1; group b 0,1; clean"}}, 2))),
            "verdict inconclusive");
  EXPECT_EQ(judge({"group a 0,1; group b 0,1; barrier; clean", "group b 0,1; barrier; cut"}),
            "verdict inconclusive");
}

TEST(GroupOrder, WhatIsThereOfATraceThatWasCutOffStillCounts) {
  EXPECT_THAT(
      judge({"group a 0,1; group b 0,1; barrier; clean", "group b 0,1; group a 0,1; barrier; cut"}),
      HasSubstr("group-divergence warning possible group=a"));
}

// As NCCL's logs, which have no end mark.
TEST(GroupOrder, TracesThatMayGoOnShowTheirOrderAllTheSame) {
  EXPECT_EQ(
      judge({"group a 0,1; group b 0,1; barrier; cut", "group b 0,1; group a 0,1; barrier; cut"}),
      "group-divergence warning possible group=a\nverdict findings");
}

TEST(GroupOrder, WhereNoTraceTellsItTheReportSaysSo) {
  auto run = program(
      {"group a 0,1; group b 0,1; barrier; clean", "group b 0,1; group a 0,1; barrier; clean"});
  for (trace::RankTrace& trace : run.ranks) trace.created_in_order = 0;
  const Report report = verify(run);
  EXPECT_EQ(summary(report), "verdict clean");
  EXPECT_THAT(report.unknown, Contains(HasSubstr("order in which ranks created")));
}

TEST(GroupOrder, ManyGroupsInReverseAreOneFinding) {
  std::string forward, backward;
  for (int i = 0; i < 300; ++i) {
    const std::string group = "group g" + std::to_string(i) + " 0,1; ";
    forward += group;
    backward.insert(0, group);
  }
  const Report report = verify(program({forward + "barrier; clean", backward + "barrier; clean"}));
  EXPECT_EQ(summary(report), "group-divergence warning possible group=g0\nverdict findings");
}

TEST(GroupNames, ExchangedDescriptionsShowAnotherOrderOfCreation) {
  const std::string usual = "group 1 0,1,2 tp; group 2 0,1,2 dp; barrier; clean";
  const Report report =
      verify(program({usual, usual, "group 1 0,1,2 dp; group 2 0,1,2 tp; barrier; clean"}));
  EXPECT_EQ(summary(report),
            "group-divergence warning observed culprits=2 group=1\nverdict findings");
  EXPECT_THAT(report.findings[0].message,
              HasSubstr("group 1 is \"tp\" to ranks 0, 1, but \"dp\" to rank 2, which calls group "
                        "2 \"tp\""));
}

TEST(GroupNames, CallsThatPartInThemFollow) {
  const std::string usual =
      "group 1 0,1,2 tp; group 2 0,1,2 dp; all_reduce g=1 n=4; all_reduce g=2 n=8 open; hung";
  const Report report = verify(
      program({usual, usual,
               "group 1 0,1,2 dp; group 2 0,1,2 tp; all_reduce g=2 n=4; all_reduce g=1 n=8 open; "
               "hung"}));
  EXPECT_EQ(report.findings[0].rule, RuleId::group_divergence) << summary(report);
  EXPECT_EQ(report.findings[0].severity, Severity::error);
  EXPECT_EQ(report.findings[0].culprits, std::vector<trace::Rank>{trace::Rank(2)});
  EXPECT_FALSE(report.findings[0].consequences.empty());
}

TEST(GroupNames, RolesThatDependOnTheRank) {
  EXPECT_EQ(judge({"group 1 0,1 next; group 3 0,2 previous; barrier; clean",
                   "group 1 0,1 previous; group 2 1,2 next; barrier; clean",
                   "group 2 1,2 previous; group 3 0,2 next; barrier; clean"}),
            "verdict clean");
}

TEST(GroupNames, OneDescriptionForManyGroups) {
  EXPECT_EQ(judge({"group 1 0,1 dp; group 2 0,1 dp; barrier; clean",
                   "group 1 0,1 dp; group 2 0,1 dp; barrier; clean"}),
            "verdict clean");
  EXPECT_EQ(judge({"group 1 0,1 tp; group 2 0,1; barrier; clean",
                   "group 1 0,1; group 2 0,1 tp; barrier; clean"}),
            "verdict clean")
      << "nothing contradicts";
}

// As many groups as no job has: each is judged as if it were the only one.
std::string many(const std::string& prefix, int count, const std::string& members) {
  std::string out;
  for (int i = 0; i < count; ++i) {
    out += "group " + prefix + std::to_string(i) + " " + members + "; ";
  }
  return out;
}

TEST(ManyGroups, NothingIsFoundInEqualOnes) {
  const std::string rank = many("g", 3000, "0,1") + "all_reduce g=g1234 n=4; clean";
  EXPECT_EQ(judge({rank, rank}), "verdict clean");
}

TEST(ManyGroups, OneWithOtherMembers) {
  const std::string rank = many("g", 2000, "0,1,2");
  EXPECT_EQ(
      judge({rank + "group odd 0,1,2; barrier; clean", rank + "group odd 0,1,2; barrier; clean",
             rank + "group odd 0,2; barrier; clean"}),
      "group-divergence error observed culprits=2 group=odd\nverdict findings");
}

TEST(ManyGroups, ACallThatDiffersInOne) {
  const std::string rank = many("g", 2000, "0,1");
  EXPECT_EQ(judge({rank + "all_reduce g=g77 n=4; clean", rank + "all_reduce g=g77 n=8; clean"}),
            "size-mismatch error observed group=g77 seq=0\nverdict findings");
}

// The shortest cycle leads through all of them, and is two steps for its two ranks.
TEST(ManyGroups, AnOrderThatContradictsTheFirstAndTheLast) {
  EXPECT_EQ(judge({many("g", 2000, "0,1") + "barrier; clean",
                   "group g1999 0,1; group g0 0,1; barrier; clean"}),
            "group-divergence warning possible group=g0\nverdict findings");
}

TEST(ManyGroups, ManyPairsInOppositeOrders) {
  std::string one;
  std::string other;
  for (int i = 100; i < 400; ++i) {
    const std::string a = "group a" + std::to_string(i) + " 0,1; ";
    const std::string b = "group b" + std::to_string(i) + " 0,1; ";
    one += a + b;
    other += b + a;
  }
  const Report report = verify(program({one + "barrier; clean", other + "barrier; clean"}));
  EXPECT_EQ(report.findings.size(), 300U);
  EXPECT_THAT(report.findings[299].message,
              HasSubstr("rank 0 created group a399 before group b399, but rank 1 created group "
                        "b399 before group a399"));
}

}  // namespace
}  // namespace lockstep::verify
