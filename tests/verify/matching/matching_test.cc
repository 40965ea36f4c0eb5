// The rules of the family matching: each where it must fire, and beside it a look-alike.
#include <algorithm>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/verify/program.h"
#include "trace/formats/text/text_trace.h"
#include "trace/load.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(Matching, AgreeingRanksAreClean) {
  EXPECT_EQ(judge({"all_reduce n=8 redop=sum; barrier; clean",
                   "all_reduce n=8 redop=sum; barrier; clean"}),
            "verdict clean");
}

TEST(Matching, WhatWasNotRecordedIsNoMismatch) {
  EXPECT_EQ(judge({"all_reduce n=8 redop=sum dtype=float32 what=w; clean", "all_reduce; clean"}),
            "verdict clean");
}

TEST(Matching, ShapesMayDifferWhereElementCountsAgree) {
  EXPECT_EQ(judge({"all_reduce n=4,8; clean", "all_reduce n=32; clean"}), "verdict clean");
}

TEST(Matching, DifferentSizesInAHang) {
  EXPECT_EQ(judge({"all_reduce n=8; all_reduce n=16 open; hung",
                   "all_reduce n=8; all_reduce n=16 open; hung",
                   "all_reduce n=8; all_reduce n=12 open; hung"}),
            "size-mismatch error proven culprits=2 group=world seq=1\nverdict findings");
}

TEST(Matching, DifferentReduceOperationsDoNotHang) {
  EXPECT_EQ(
      judge({"all_reduce n=8 redop=sum; barrier; clean", "all_reduce n=8 redop=max; barrier; clean",
             "all_reduce n=8 redop=sum; barrier; clean"}),
      "redop-mismatch error observed culprits=1 group=world seq=0\nverdict findings");
}

TEST(Matching, DifferentTypes) {
  EXPECT_THAT(
      judge({"all_reduce n=8 dtype=float32 open; hung", "all_reduce n=8 dtype=float32 open; hung",
             "all_reduce n=8 dtype=bfloat16 open; hung"}),
      HasSubstr("dtype-mismatch error proven culprits=2 group=world seq=0"));
}

TEST(Matching, DifferentRoots) {
  EXPECT_THAT(judge({"broadcast n=8 root=0 open; hung", "broadcast n=8 root=1 open; hung",
                     "broadcast n=8 root=0 open; hung"}),
              HasSubstr("root-mismatch error proven culprits=1 group=world seq=0"));
}

TEST(Matching, RootsOfSeveralRanksAreToldByRank) {
  const std::string usual = "reduce n=8 root=0; ";
  const Report report = verify(
      program({usual + "reduce n=8 root=0 open; hung", usual + "reduce n=8 root=1 open; hung",
               usual + "reduce n=8 root=2 open; hung", usual + "reduce n=8 root=2 open; hung",
               usual + "reduce n=8 root=0 open; hung"}));
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].rule, RuleId::root_mismatch);
  EXPECT_THAT(report.findings[0].message,
              HasSubstr("rank 1 issued reduce of 8 (root 1) and ranks 2, 3 issued reduce of 8 "
                        "(root 2) where ranks 0, 4 issued reduce of 8 (root 0)"));
}

TEST(Matching, ATieHasBothReadings) {
  const Report tie =
      verify(program({"barrier; all_reduce n=8 async open; clean", "barrier; clean"}));
  ASSERT_FALSE(tie.findings.empty());
  EXPECT_TRUE(tie.findings[0].culprits.empty());
  EXPECT_THAT(
      tie.findings[0].message,
      HasSubstr("and rank 1 did not: either rank 1 left it out, or rank 0 made one too many"));
}

// What differs later in the group follows from it, although it seems to name one of the two.
TEST(Matching, ATieIsOneFinding) {
  const Report report = verify(program(
      {"all_reduce n=2; all_reduce n=20; all_reduce n=32; all_reduce n=32; all_reduce n=6 open; "
       "hung",
       "all_reduce n=2; all_reduce n=596; all_reduce n=288; all_reduce n=32; all_reduce n=7 open; "
       "hung"}));
  EXPECT_EQ(report.findings.size(), 1U);
  EXPECT_TRUE(report.findings[0].culprits.empty());
}

// After "a b a" a round may end or begin again: one round does not show which.
TEST(Matching, ARoundThatBeginsAsItEndsIsNoHabit) {
  const std::string round = "all_reduce n=32; all_gather n=8; all_reduce n=32; ";
  EXPECT_EQ(judge({round + "all_reduce n=32; all_gather n=8 open; hung",
                   round + "all_reduce n=32; all_reduce n=32 open; hung"})
                .find("culprits"),
            std::string::npos);
  // Two rounds do.
  EXPECT_THAT(judge({round + round + "all_reduce n=32; all_gather n=8 open; hung",
                     round + round + "all_reduce n=32; all_reduce n=32 open; hung"}),
              HasSubstr("culprits=1"));
}

// Texts have lengths of their own, so that the past does not tell which of two ranks left a loop
// too early or too late. Where the lengths are equal, it does.
TEST(Matching, OfTwoWhoseLoopsVaryNobodyIsNamed) {
  const auto step = [](int number, int calls) {
    std::string out;
    for (int i = 0; i < calls; ++i) out += fmt::format("all_reduce n=2 step={}; ", number);
    return out;
  };
  const auto pair = [&](const std::string& past) {
    return judge({past + step(3, 4) + step(4, 1) + "all_reduce n=2 step=4 open; hung",
                  past + step(3, 2) + step(4, 4) + "hung"});
  };
  EXPECT_THAT(pair(step(0, 2) + step(1, 4) + step(2, 2)), Not(HasSubstr("culprits")));
  EXPECT_THAT(pair(step(0, 4) + step(1, 4) + step(2, 4)), HasSubstr("culprits=1"));
}

// Four pairs of tensor parallelism, two in each stage of a pipeline. In the first step, rank 1
// leaves out a call. After that it issues what the pairs of the other stage do, which are more than
// those of its own.
TEST(Matching, OnlyGroupsOfOneStageShowWhatIsUsual) {
  std::vector<std::string> ranks;
  for (int r = 0; r < 8; ++r) {
    const bool first_stage = r % 4 < 2;
    const std::string group = fmt::format("tp{}", r / 2);
    const auto reduce = [&](const char* what, int line) {
      return fmt::format("all_reduce g={} n=5 what={} at=tp.py:{}; ", group, what, line);
    };
    const int peer = first_stage ? r + 2 : r - 2;
    const std::string act = reduce("act", 1), grad = reduce("grad", 2);
    const std::string send = fmt::format("send peer={} n=3; ", peer);
    const std::string recv = fmt::format("recv peer={} n=3; ", peer);
    std::string calls =
        fmt::format("backend nccl; group {} {},{}; ", group, r / 2 * 2, r / 2 * 2 + 1);
    if (first_stage) {
      calls += act + send + (r == 1 ? "" : act) + send + recv + grad + recv;
      calls += r == 0 ? fmt::format("all_reduce g={} n=5 what=grad at=tp.py:2 open; hung", group)
                      : grad + "clean";
    } else {
      calls += recv + act + grad + send + recv + act + grad + send + "clean";
    }
    ranks.push_back(calls);
  }
  EXPECT_THAT(judge(ranks), HasSubstr("missing-collective error observed culprits=1"));
}

TEST(Matching, DifferentOperations) {
  EXPECT_THAT(judge({"all_reduce n=8 open; hung", "broadcast n=8 root=0 open; hung",
                     "all_reduce n=8 open; hung"}),
              HasSubstr("op-mismatch error proven culprits=1 group=world seq=0"));
}

TEST(Matching, ATieNamesNobody) {
  EXPECT_EQ(judge({"all_reduce n=8 redop=sum; clean", "all_reduce n=8 redop=max; clean"}),
            "redop-mismatch error observed group=world seq=0\nverdict findings");
}

TEST(Matching, OfTwoTheOneThatLeftItsHabitDeviates) {
  const std::string usual =
      "all_reduce n=8 redop=sum; barrier; all_reduce n=8 redop=sum; barrier; ";
  EXPECT_EQ(judge({usual + "all_reduce n=8 redop=max; barrier; clean",
                   usual + "all_reduce n=8 redop=sum; barrier; clean"}),
            "redop-mismatch error observed culprits=0 group=world seq=4\nverdict findings");
}

TEST(Matching, ASkippedCallIsOneFindingThoughEverythingAfterItIsOff) {
  const std::string step = "all_reduce n=1 what=a; all_reduce n=2 what=b; all_reduce n=3 what=c; ";
  EXPECT_EQ(judge({step + step + "all_reduce n=1 what=a; all_reduce n=2 what=b open; hung",
                   step + step + "all_reduce n=1 what=a; all_reduce n=2 what=b open; hung",
                   step + step + "all_reduce n=1 what=a; all_reduce n=3 what=c open; hung"}),
            "missing-collective error proven culprits=2 group=world seq=7\nverdict findings");
}

TEST(Matching, ASkippedCallIsSeenWithoutParameterNames) {
  const std::string step = "all_reduce n=1; all_reduce n=2; all_reduce n=3; ";
  EXPECT_EQ(judge({step + step + "all_reduce n=1; all_reduce n=2 open; hung",
                   step + step + "all_reduce n=1; all_reduce n=2 open; hung",
                   step + step + "all_reduce n=1; all_reduce n=3 open; hung"}),
            "missing-collective error proven culprits=2 group=world seq=7\nverdict findings");
}

TEST(Matching, ASkipInEveryStepIsStillOneFinding) {
  std::string full;
  std::string skipping;
  for (int s = 0; s < 6; ++s) {
    const std::string step = " step=" + std::to_string(s) + "; ";
    full += "all_reduce n=4 what=a" + step + "all_reduce n=4 what=b" + step;
    skipping += "all_reduce n=4 what=b" + step;
  }
  EXPECT_EQ(judge({full + "clean", full + "clean", skipping + "clean"}).substr(0, 71),
            "missing-collective error observed culprits=2 group=world seq=0 step=0\nv");
}

TEST(Matching, EqualCallsOutOfStepAreSeenByTheirStep) {
  // All calls look alike; rank 1 left out the one of step 1 and then ran out of calls.
  EXPECT_THAT(
      judge({"all_reduce n=4 step=0; all_reduce n=4 step=1; all_reduce n=4 step=2 open; hung",
             "all_reduce n=4 step=0; all_reduce n=4 step=2; clean",
             "all_reduce n=4 step=0; all_reduce n=4 step=1; all_reduce n=4 step=2 open; hung"}),
      HasSubstr("missing-collective error proven culprits=1 group=world seq=1 step=1"));
}

TEST(Matching, StepLabelsAloneAccuseNobody) {
  EXPECT_EQ(judge({"all_reduce n=4 step=1; all_reduce n=4 step=2; clean",
                   "all_reduce n=4 step=0; all_reduce n=4 step=1; clean"}),
            "verdict clean");
}

TEST(Matching, AnExtraCall) {
  const std::string step = "all_reduce n=1 what=a; all_reduce n=2 what=b; ";
  EXPECT_EQ(
      judge({step + "barrier; " + step + "clean", step + step + "clean", step + step + "clean"})
          .substr(0, 58),
      "extra-collective error observed culprits=0 group=world seq");
}

// Every backward reduces, and rank 1 has one more micro-batch per step.
TEST(Matching, OneMicroBatchMoreIsADifferentAccumulationCount) {
  const auto steps = [](int micro_batches) {
    std::string out;
    for (const char* step : {"0", "1"})
      for (int m = 0; m < micro_batches; ++m)
        for (const char* name : {"a", "b"})
          out += std::string("all_reduce n=8 what=") + name + " step=" + step + "; ";
    return out;
  };
  const Report report =
      verify(program({steps(2) + "clean", steps(3) + "hung", steps(2) + "clean"}));
  ASSERT_FALSE(report.findings.empty());
  const Finding& f = report.findings[0];
  EXPECT_EQ(f.rule, RuleId::extra_collective);
  EXPECT_THAT(f.message, testing::StartsWith("the accumulation counts differ: rank 1 reduced its "
                                             "gradients more often in step 0 than ranks 0, 2."));
  EXPECT_THAT(f.fix, HasSubstr("the same number of micro-batches per step"));
  // A call more that repeats none before it is another matter.
  const Report other =
      verify(program({"all_reduce n=8 what=a step=0; all_reduce n=8 what=b step=0; clean",
                      "all_reduce n=8 what=a step=0; all_reduce n=9 what=c step=0; "
                      "all_reduce n=8 what=b step=0; clean",
                      "all_reduce n=8 what=a step=0; all_reduce n=8 what=b step=0; clean"}));
  ASSERT_FALSE(other.findings.empty());
  EXPECT_THAT(other.findings[0].message, testing::Not(HasSubstr("accumulation")));
}

// Rank 0 saves after step 1 and waits in a barrier, while rank 1 is in step 2.
TEST(Matching, AMessageHasOneStepNumber) {
  const Report report = verify(program(
      {"all_reduce n=8 what=a step=0; all_reduce n=8 what=a step=1; barrier step=1 at=c.py:4 "
       "open; hung",
       "all_reduce n=8 what=a step=0; all_reduce n=8 what=a step=1; all_reduce n=8 what=a "
       "step=2 at=d.py:9 open; hung"}));
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].rule, RuleId::extra_collective);
  EXPECT_EQ(report.findings[0].step, 1);
  EXPECT_THAT(report.findings[0].message, HasSubstr("call 2 of group world, step 1, c.py:4"));
  EXPECT_THAT(report.findings[0].message, testing::Not(HasSubstr("step 2")));
}

// Texts are generated in step 1, a call for each token. As on a GPU, the host of rank 2 runs ahead
// into its next step, whose third call is like the one that the others wait in.
TEST(Matching, ARankInALaterStepLeftOutWhatTheOthersStillCall) {
  const std::string tokens =
      "all_reduce n=1 what=root step=0; all_reduce n=8 what=a step=0; all_reduce n=8 what=b "
      "step=0; "
      "all_reduce n=1 what=root step=1; all_reduce n=8 what=a step=1; all_reduce n=8 what=b "
      "step=1; ";
  const std::string goes_on = tokens + "all_reduce n=8 what=a step=1 open; hung";
  EXPECT_THAT(
      judge({goes_on, goes_on,
             tokens + "all_reduce n=1 what=root step=2 open; all_reduce n=2 what=s step=2 open; "
                      "all_reduce n=8 what=a step=2 open; hung"}),
      HasSubstr("missing-collective error proven culprits=2 group=world seq=6 step=1"));
}

// The other way round: it is the only one that still calls in step 1.
TEST(Matching, ARankInAnEarlierStepCallsTooMuch) {
  const std::string tokens =
      "all_reduce n=1 what=root step=0; all_reduce n=8 what=a step=0; all_reduce n=8 what=a "
      "step=0; "
      "all_reduce n=1 what=root step=1; all_reduce n=8 what=a step=1; all_reduce n=8 what=a "
      "step=1; ";
  const std::string next = tokens + "all_reduce n=1 what=root step=2 open; hung";
  EXPECT_THAT(judge({next, next, tokens + "all_reduce n=8 what=a step=1 open; hung"}),
              HasSubstr("extra-collective error proven culprits=2 group=world seq=6 step=1"));
}

// Rank 0 alone validates: its gathers pair with those of the other's next step, and only what comes
// later differs.
TEST(Matching, CallsThatPairedWithOthersAreToldByTheirLines) {
  const std::string step =
      "all_reduce n=4 at=t.py:9; all_reduce n=4 at=t.py:9; "
      "all_reduce n=8 at=t.py:9; ";
  const std::string goes_on = step + step +
                              "all_reduce n=4 at=t.py:9; all_reduce n=4 at=t.py:9; "
                              "all_reduce n=8 at=t.py:9 open; hung";
  const std::string validates = step + step +
                                "all_reduce n=4 at=v.py:5; all_reduce n=4 at=v.py:5; "
                                "all_reduce n=4 at=t.py:9 open; hung";
  const auto found =
      HasSubstr("extra-collective error proven culprits=0 group=world seq=6\nverdict findings");
  EXPECT_THAT(judge({validates, goes_on}), found);
  EXPECT_THAT(judge({validates, goes_on, goes_on}), found);
  // Other lines alone are not a fault: a root may call from another branch.
  EXPECT_EQ(judge({"broadcast n=4 root=0 at=t.py:3; barrier at=t.py:7; clean",
                   "broadcast n=4 root=0 at=t.py:5; barrier at=t.py:7; clean"}),
            "verdict clean");
}

// A tower that runs once for images and, on ranks 0 and 1, once more for videos.
TEST(Matching, APartThatRunsOnceMoreFromALineOfItsOwnIsTooMany) {
  const auto rank = [](bool has_video) {
    const std::string tower = "all_gather_into_tensor n=120 at=m.py:28; ";
    const std::string layers = repeated("all_gather_into_tensor n=276 at=m.py:31; ", 3);
    const std::string last = has_video ? "all_gather_into_tensor n=120 at=m.py:29 open; hung"
                                       : "all_gather_into_tensor n=276 at=m.py:31 open; hung";
    return repeated(tower + layers, 2) + tower + last;
  };
  EXPECT_THAT(judge({rank(true), rank(true), rank(false), rank(false)}),
              StartsWith("extra-collective error proven culprits=0,1 group=world seq=9"));
}

// Rank 1 leaves out three gathers of its encoder, and blocks in the second one after them. Only
// these three are told.
TEST(Matching, NoMoreCallsAreLeftOutThanWereMade) {
  const std::string step =
      "all_gather_into_tensor n=1056; all_gather_into_tensor n=240; "
      "all_gather_into_tensor n=816; all_gather_into_tensor n=816; " +
      repeated("all_gather_into_tensor n=552; ", 3) +
      repeated("reduce_scatter_tensor n=1104; ", 3) + "reduce_scatter_tensor n=480; ";
  const std::string root = "all_gather_into_tensor n=1056; ";
  const Report report = verify(
      program({repeated(step, 7) + root + "all_gather_into_tensor n=240 open; hung",
               repeated(step, 7) + root +
                   "all_gather_into_tensor n=552; all_gather_into_tensor n=552 open; hung"}));
  EXPECT_EQ(report.findings.at(0).message,
            "rank 1 never issued all_gather_into_tensor of 240, which rank 0 issued as call 78 of "
            "group world");
}

// In the first round, where nothing shows which is usual, gathers from two lines are two calls, and
// from one line they may be one in two sizes.
TEST(Matching, GathersFromTwoLinesAreNotOneInTwoSizes) {
  const auto rank = [](int n, int line) {
    return "all_gather_into_tensor n=64 at=m.py:10; " +
           fmt::format("all_gather_into_tensor n={} at=m.py:{} open; hung", n, line);
  };
  EXPECT_THAT(judge({rank(1872, 28), rank(552, 31)}),
              StartsWith("missing-collective error proven "));
  EXPECT_THAT(judge({rank(1872, 28), rank(552, 28)}), StartsWith("size-mismatch error proven "));
}

// DDP arranges its buckets once, after the first step, so two reductions follow each other first
// after the second one. That is not a reason to think that rank 1 should have come to a barrier.
TEST(Matching, WhatComesOnceIsNoHabit) {
  const std::string steps =
      "all_reduce n=8 at=t.py:3; broadcast n=2 root=0 at=t.py:3; all_reduce n=8 at=t.py:3; ";
  EXPECT_THAT(judge({steps + "barrier at=t.py:9 open; hung",
                     steps + "all_reduce n=8 at=t.py:3 open; hung"}),
              HasSubstr("op-mismatch error proven culprits=0 group=world seq=3"));
}

TEST(Matching, TwoCallsInAnotherOrder) {
  EXPECT_THAT(judge({"all_reduce n=4 what=a; all_reduce n=4 what=b; barrier; clean",
                     "all_reduce n=4 what=b; all_reduce n=4 what=a; barrier; clean",
                     "all_reduce n=4 what=a; all_reduce n=4 what=b; barrier; clean"}),
              HasSubstr("order-swap error observed culprits=1 group=world seq=0"));
}

TEST(Matching, SeveralCallsInAnotherOrder) {
  const auto rank = [](const std::string& order) {
    std::string out = "all_reduce n=9; ";
    for (const char size : order) {
      out += "all_reduce n=";
      out += size;
      out += " async; ";
    }
    out += "barrier; clean";
    return out;
  };
  const Report report = verify(program({rank("1234"), rank("4321"), rank("1234")}));
  EXPECT_THAT(summary(report),
              StartsWith("order-swap error observed culprits=1 group=world seq=1\nverdict"));
  EXPECT_THAT(report.findings[0].message, HasSubstr("rank 1 issued 4 calls in another order than"));
  // A row that only moved, or calls that are alike: as well something was left out.
  EXPECT_THAT(judge({rank("1234"), rank("2341"), rank("1234")}), Not(HasSubstr("order-swap")));
  EXPECT_THAT(judge({rank("1224"), rank("4221"), rank("1224")}), Not(HasSubstr("order-swap")));
}

TEST(Matching, EqualCallsWithDifferentParametersAreSeenThoughNothingHangs) {
  EXPECT_THAT(
      judge({"all_reduce n=4 what=a; barrier; clean", "all_reduce n=4 what=x; barrier; clean",
             "all_reduce n=4 what=a; barrier; clean"}),
      HasSubstr("identity-mismatch error observed culprits=1 group=world seq=0"));
}

TEST(Matching, WithoutParametersTheSameIsCleanAndTheLimitIsListed) {
  const Report report =
      verify(program({"all_reduce n=4; barrier; clean", "all_reduce n=4; barrier; clean"}));
  EXPECT_EQ(summary(report), "verdict clean");
  ASSERT_EQ(report.unknown.size(), 1U);
  EXPECT_THAT(report.unknown[0], HasSubstr("not recorded"));
}

TEST(Matching, SplitsThatDoNotFitThoughTotalsDo) {
  EXPECT_THAT(judge({"all_to_all_single n=4 in_splits=1,3 out_splits=2,2; clean",
                     "all_to_all_single n=4 in_splits=1,3 out_splits=3,1; clean"}),
              HasSubstr("splits-mismatch error observed culprits=0,1 group=world seq=0"));
}

// Not every source records splits. What comes back in another size than it went was split unevenly.
TEST(Matching, ExchangesOfDifferentSizesHaveSplitsThatWereNotRecorded) {
  EXPECT_EQ(judge({"all_to_all_single in=4 out=6; clean", "all_to_all_single in=5 out=3; clean"}),
            "verdict clean");
  EXPECT_THAT(judge({"all_to_all_single in=4 out=4; clean", "all_to_all_single in=8 out=8; clean"}),
              HasSubstr("size-mismatch"));
}

TEST(Matching, SplitsThatDoNotFitWithinOneRankNameItOnce) {
  const Report report =
      verify(program({"all_to_all_single n=4 in_splits=2,2 out_splits=1,3; clean",
                      "all_to_all_single n=4 in_splits=3,1 out_splits=2,1; clean"}));
  ASSERT_EQ(report.findings.size(), 1U);
  EXPECT_EQ(report.findings[0].ranks, std::vector{trace::Rank(0)});
  EXPECT_EQ(report.findings[0].culprits, std::vector{trace::Rank(0)});
  EXPECT_THAT(report.findings[0].message, HasSubstr("rank 0 sends 2 to itself, and expects 1"));
}

// Ranks 0 and 1 exchange 4, then 8; rank 2 the other way round.
TEST(Matching, ExchangesInTheOtherOrderAreASwap) {
  const std::string four = "all_to_all_single n=4 in_splits=2,1,1 out_splits=2,1,1; ";
  const std::string eight = "all_to_all_single n=8 in_splits=2,3,3 out_splits=2,3,3; ";
  const std::string four_2 = "all_to_all_single n=4 in_splits=1,1,2 out_splits=1,1,2; ";
  const std::string eight_2 = "all_to_all_single n=8 in_splits=3,3,2 out_splits=3,3,2; ";
  const std::string four_1 = "all_to_all_single n=4 in_splits=1,2,1 out_splits=1,2,1; ";
  const std::string eight_1 = "all_to_all_single n=8 in_splits=3,2,3 out_splits=3,2,3; ";
  EXPECT_THAT(judge({four + eight + four + "clean", four_1 + eight_1 + four_1 + "clean",
                     eight_2 + four_2 + four_2 + "clean"}),
              HasSubstr("order-swap error observed culprits=2 group=world seq=0"));
  // The look-alike: of exchanges that alternate, rank 2 left out the first.
  EXPECT_THAT(
      judge({four + eight + four + eight + "clean", four_1 + eight_1 + four_1 + eight_1 + "clean",
             eight_2 + four_2 + eight_2 + "clean"}),
      HasSubstr("missing-collective error observed culprits=2 group=world seq=0"));
}

// Rows of four exchanges, of which ranks 0 and 1 leave out the first one in the third round. That
// rank 2 makes one more is what its rounds before show.
TEST(Matching, ThePastTellsThatMostLeftOutAnExchange) {
  const auto row = [](const std::string& four, const std::string& eight) {
    const std::string pair = "all_to_all_single n=4 in_splits=" + four + " out_splits=" + four +
                             "; all_to_all_single n=8 in_splits=" + eight + " out_splits=" + eight +
                             "; ";
    return pair + pair;
  };
  const auto rank = [&](const std::string& four, const std::string& eight, bool leaves_out) {
    const std::string whole = row(four, eight);
    const std::string last = leaves_out ? whole.substr(whole.find(';') + 2) : whole;
    const std::string reduce = "all_reduce g=dp n=1";
    return "group dp 0,1,2; " + whole + reduce + "; " + whole + reduce + "; " + last +
           (leaves_out ? reduce + " open; hung" : "hung");
  };
  const auto judge_ranks = [&](bool one, bool other) {
    return judge(
        {rank("2,1,1", "2,3,3", one), rank("1,2,1", "3,2,3", one), rank("1,1,2", "3,3,2", other)});
  };
  EXPECT_THAT(judge_ranks(true, false),
              HasSubstr("missing-collective error proven culprits=0,1 group=world seq=8"));
  EXPECT_THAT(judge_ranks(false, true),
              HasSubstr("missing-collective error proven culprits=2 group=world seq=8"));
}

TEST(Matching, SplitsThatFit) {
  EXPECT_EQ(judge({"all_to_all_single n=4 in_splits=1,3 out_splits=1,2; clean",
                   "all_to_all_single n=4 in_splits=2,2 out_splits=3,2; clean"}),
            "verdict clean");
}

TEST(Matching, GroupsWithDifferentMembers) {
  EXPECT_THAT(judge({"group dp 0,1; all_reduce g=dp n=4 open; hung",
                     "group dp 0,1,2; all_reduce g=dp n=4 open; hung", "group dp 0,1; clean"}),
              HasSubstr("group-divergence error"));
}

TEST(Matching, GroupsOfOthersAreNobodysBusiness) {
  EXPECT_EQ(
      judge({"group a 0,1; all_reduce g=a n=4; clean", "group a 0,1; all_reduce g=a n=4; clean",
             "group b 2; all_reduce g=b n=9; clean"}),
      "verdict clean");
}

TEST(Matching, TheOrderOfFilesChangesNothing) {
  std::vector<std::string> texts;
  const std::vector<std::string> programs = {"all_reduce n=8; all_reduce n=16 open; hung",
                                             "all_reduce n=8; all_reduce n=16 open; hung",
                                             "all_reduce n=8; all_reduce n=12 open; hung"};
  const std::string expected = judge(programs);
  std::vector<std::size_t> order = {0, 1, 2};
  do {
    trace::Tables tables;
    std::vector<trace::RankTrace> traces;
    for (const std::size_t r : order) {
      auto trace = trace::read_text_trace(
          program_text(static_cast<std::int32_t>(r), 3, programs[r]), "x", tables);
      ASSERT_TRUE(trace);
      traces.push_back(std::move(*trace));
    }
    EXPECT_EQ(summary(verify(trace::assemble_run(std::move(tables), std::move(traces)))), expected);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(Matching, AWholeBranchLeftOutIsSeenFromTheOneCallAfterIt) {
  std::string step;
  for (int i = 0; i < 30; ++i)
    step += "all_reduce n=" + std::to_string(10 + i) + " what=image." + std::to_string(i) + "; ";
  step += "all_reduce n=7 what=text; all_reduce n=8 what=head; ";
  EXPECT_THAT(judge({step + step + "all_reduce n=10 what=image.0 open; hung",
                     step + step + "all_reduce n=7 what=text open; cut",
                     step + step + "all_reduce n=10 what=image.0 open; hung"}),
              HasSubstr("missing-collective error proven culprits=1 group=world seq=64"));
}

// Rank 1 leaves out step 1, and makes as many calls as the others in the end.
TEST(Matching, AStepLeftOutByOneRank) {
  const std::string usual =
      "all_reduce n=4 what=w step=0; all_reduce n=4 what=w step=1; "
      "all_reduce n=4 what=w step=2; clean";
  const std::string skips =
      "all_reduce n=4 what=w step=0; all_reduce n=4 what=w step=2; "
      "all_reduce n=4 what=w step=3; clean";
  EXPECT_EQ(judge({usual, skips, usual}),
            "step-mismatch error observed culprits=1 group=world seq=1 step=1\nverdict findings");
  // Of two, the one without a call in that step: it has one in its others.
  EXPECT_EQ(judge({usual, skips}),
            "step-mismatch error observed culprits=1 group=world seq=1 step=1\nverdict findings");
}

// Rank 1 has fewer batches: under Join it calls for the others' steps, in its own last one.
TEST(Matching, ARankThatMirrorsItsPeersUnderJoinIsInNoStep) {
  const auto calls = [](const std::vector<std::pair<int, bool>>& steps) {
    std::string out;
    for (const auto& [step, joined] : steps)
      for (int i = 0; i < 2; ++i)
        out += fmt::format("all_reduce n=4{} step={}; ", joined ? " tag=join" : "", step);
    return out + "clean";
  };
  const auto usual = calls({{0, false}, {1, false}, {2, false}, {3, false}});
  EXPECT_EQ(judge({usual, calls({{0, false}, {1, false}, {1, true}, {1, true}})}), "verdict clean");
  EXPECT_EQ(judge({usual, calls({{0, false}, {1, false}, {1, false}, {1, false}})}),
            "step-mismatch warning observed culprits=1 group=world seq=4 step=1\nverdict findings");
}

// One call of step 1 left out, one too many issued in step 2: the calls between pair across steps.
TEST(Matching, ACallLeftOutThatIsMadeUpForInTheNextStep) {
  const auto calls = [](const std::vector<int>& in_step) {
    std::string out;
    for (std::size_t s = 0; s < in_step.size(); ++s)
      for (int i = 0; i < in_step[s]; ++i)
        out += "all_reduce n=4 what=w step=" + std::to_string(s) + "; ";
    return out + "clean";
  };
  EXPECT_EQ(judge({calls({3, 3, 3, 3, 3}), calls({3, 2, 4, 3, 3})}),
            "step-mismatch error observed culprits=1 group=world seq=5 step=1\nverdict findings");
  EXPECT_EQ(judge({calls({3, 2, 4, 3, 3}), calls({3, 3, 3, 3, 3})}),
            "step-mismatch error observed culprits=0 group=world seq=5 step=1\nverdict findings");
  // The look-alike: a label that is late each time.
  EXPECT_EQ(judge({calls({3, 3, 3, 3, 3}), calls({4, 3, 3, 3, 2})}), "verdict clean");
  // Too few steps to tell the two apart.
  EXPECT_EQ(judge({calls({3, 3, 3}), calls({3, 2, 4})}), "verdict clean");
  // Batches tell them apart: the rank went to the next step early where it lacked images.
  const std::string images =
      "modality 0 image,text; modality 1 image,text; modality 2 image,text; ";
  const std::string text_in_1 = "modality 0 image,text; modality 1 text; modality 2 image,text; ";
  EXPECT_THAT(judge({images + calls({3, 3, 3}), text_in_1 + calls({3, 2, 4})}),
              HasSubstr("modality-divergence error observed culprits=1 group=world seq=5 step=1"));
  // Its labels are late where it has images, too.
  EXPECT_EQ(judge({images + calls({3, 3, 3}), text_in_1 + calls({2, 3, 4})}), "verdict clean");
}

// Calls of another group in between show that the call was made up for.
TEST(Matching, ACallMadeUpForAfterThoseOfAnotherGroup) {
  const auto calls = [](const std::vector<int>& in_step, const std::string& late_label = "") {
    std::string out = "group dp 0,1,2; ";
    for (std::size_t s = 0; s < in_step.size(); ++s) {
      const std::string step = " step=" + std::to_string(s) + "; ";
      for (int i = 0; i < in_step[s]; ++i)
        out += "all_reduce n=4" + (s == 1 && i == 0 && !late_label.empty() ? late_label : step);
      out += "all_reduce g=dp n=8" + step;
    }
    return out + "clean";
  };
  EXPECT_EQ(judge({calls({3, 3, 3}), calls({3, 2, 4}), calls({3, 3, 3})}),
            "step-mismatch warning observed culprits=1 group=world seq=5 step=1\nverdict findings");
  // The look-alike: a label that is late.
  EXPECT_EQ(judge({calls({3, 3, 3}), calls({3, 3, 3}, " step=0; "), calls({3, 3, 3})}),
            "verdict clean");
}

// Calls before the first step have none, as a broadcast of the parameters.
TEST(Matching, StepsAreComparedAfterCallsThatHaveNone) {
  const auto calls = [](const std::vector<int>& in_step) {
    std::string out = "group dp 0,1,2; broadcast n=9 root=0; ";
    for (std::size_t s = 0; s < in_step.size(); ++s) {
      const std::string step = " step=" + std::to_string(s) + "; ";
      for (int i = 0; i < in_step[s]; ++i) out += "all_reduce n=4" + step;
      out += "all_reduce g=dp n=8" + step;
    }
    return out + "clean";
  };
  EXPECT_EQ(judge({calls({1, 1, 1}), calls({1, 0, 2}), calls({1, 1, 1})}),
            "step-mismatch warning observed culprits=1 group=world seq=2 step=1\nverdict findings");
  EXPECT_EQ(judge({calls({1, 1, 1}), calls({1, 1, 1}), calls({1, 1, 1})}), "verdict clean");
}

// Calls of other steps from other lines are no labels that are late.
TEST(Matching, LinesShowThatACallIsOfAnotherStep) {
  const auto calls = [](const std::vector<std::string>& steps) {
    std::string out;
    for (std::size_t s = 0; s < steps.size(); ++s)
      for (const char line : steps[s])
        out += fmt::format("all_reduce n=4 at=model.py:{} step={}; ", line, s);
    return out + "clean";
  };
  const std::string usual = calls({"44", "46", "46"});
  EXPECT_EQ(judge({usual, calls({"44", "4", "446"}), usual}),
            "step-mismatch warning observed culprits=1 group=world seq=3 step=1\nverdict findings");
  // Its label is late, and the line is the same.
  EXPECT_EQ(
      judge({calls({"44", "44", "44"}), calls({"44", "4", "444"}), calls({"44", "44", "44"})}),
      "verdict clean");
}

// Of calls whose parameters are not recorded nobody knows what was meant.
TEST(Matching, AStepLeftOutOfUnnamedCallsIsAWarning) {
  const auto calls = [](const std::vector<int>& steps) {
    std::string out;
    for (const int s : steps) out += "all_reduce n=4 step=" + std::to_string(s) + "; ";
    return out + "clean";
  };
  EXPECT_EQ(judge({calls({0, 1, 2}), calls({0, 2, 3}), calls({0, 1, 2})}),
            "step-mismatch warning observed culprits=1 group=world seq=1 step=1\nverdict findings");
}

TEST(Matching, AStepLeftOutInAHangIsTheMissingCall) {
  const std::string usual =
      "all_reduce n=4 what=w step=0; all_reduce n=4 what=w step=1; "
      "all_reduce n=4 what=w step=2 open; hung";
  EXPECT_THAT(
      judge({usual, "all_reduce n=4 what=w step=0; all_reduce n=4 what=w step=2; clean", usual}),
      Not(HasSubstr("step-mismatch")));
}

// A label that a loader's thread reads as the step changes, an epoch's last call counted otherwise,
// ranks that count from different numbers.
TEST(Matching, LabelsThatAreLateAreNoOtherSteps) {
  EXPECT_EQ(judge({"broadcast n=4 root=0 step=0; broadcast n=4 root=0 step=1; "
                   "broadcast n=4 root=0 step=2; clean",
                   "broadcast n=4 root=0 step=0; broadcast n=4 root=0 step=0; "
                   "broadcast n=4 root=0 step=2; clean"}),
            "verdict clean");
  EXPECT_EQ(judge({"all_reduce n=4 step=0; all_reduce n=4 step=1; barrier step=1; clean",
                   "all_reduce n=4 step=0; all_reduce n=4 step=1; barrier step=2; clean"}),
            "verdict clean");
  EXPECT_EQ(judge({"all_reduce n=4 step=0; all_reduce n=4 step=1; clean",
                   "all_reduce n=4 step=100; all_reduce n=4 step=101; clean"}),
            "verdict clean");
}

TEST(Matching, StepsThatWereNotRecordedCannotDiffer) {
  EXPECT_EQ(judge({"all_reduce n=4 step=0; all_reduce n=4; all_reduce n=4; clean",
                   "all_reduce n=4 step=0; all_reduce n=4 step=2; all_reduce n=4 step=3; clean"}),
            "verdict clean");
}

// The exchanges of five ranks: how much each sends to each differs from round to round.
std::string exchange(std::size_t rank, std::size_t round) {
  const auto sent = [&](std::size_t from, std::size_t to) {
    return std::to_string(1 + (from * 7 + to * 3 + round * (5 + from + 2 * to)) % 11);
  };
  std::string given, taken;
  for (std::size_t peer = 0; peer < 5; ++peer) {
    given += (peer == 0 ? "" : ",") + sent(rank, peer);
    taken += (peer == 0 ? "" : ",") + sent(peer, rank);
  }
  return "all_to_all_single in_splits=" + given + " out_splits=" + taken;
}

std::string exchanges(const std::vector<std::size_t>& skips, const std::string& more = "") {
  std::vector<std::string> programs;
  for (std::size_t r = 0; r < 5; ++r) {
    std::string text = "backend nccl; " + exchange(r, 0) + " async; ";
    const bool skip = std::find(skips.begin(), skips.end(), r) != skips.end();
    if (!skip) text += exchange(r, 1) + " async open; ";
    programs.push_back(text + exchange(r, 2) + " async open; " + more + "hung");
  }
  return judge(programs);
}

TEST(Splits, OfSeveralRanksThatLeftOutAnExchangeFitThoseOfTheNextOne) {
  EXPECT_THAT(exchanges({3}), HasSubstr("missing-collective error observed culprits=3 "));
  EXPECT_THAT(exchanges({1, 3}), HasSubstr("missing-collective error observed culprits=1,3 "));
  // The look-alike: nobody left out one, and nothing shows why it does not complete.
  EXPECT_THAT(exchanges({}), HasSubstr("device-stall error observed group=world seq=1"));
}

// Of the two ranks of a group nothing tells which one left out the call; of all ranks of the job,
// one left out another one just after.
TEST(Matching, ARankThatDeviatesFromMostDeviatesInItsPairToo) {
  const auto rank = [](const std::string& group, bool leaves_out) {
    const std::string own = group.substr(0, group.find(' '));
    const std::string pair = fmt::format("all_reduce g={} n=8; ", own);
    const std::string all = "all_reduce n=1; ";
    const std::string sized = fmt::format("all_reduce g={} n=9; all_reduce n=2; ", own);
    return "group " + group + "; " + (leaves_out ? "" : pair + all) + sized + "hung";
  };
  const std::string said = judge(
      {rank("a 0,1", false), rank("a 0,1", true), rank("b 2,3", false), rank("b 2,3", false)});
  EXPECT_THAT(said, HasSubstr("culprits=1"));
  EXPECT_THAT(said, Not(HasSubstr("culprits=0")));
}

// Messages of a pipeline, of which the last one does not fit. The side that changed its size is
// named, where both sides show what was usual.
TEST(Matching, TheSideOfAMessageThatChangedItsSizeIsNamed) {
  const auto of = [](const std::string& rounds_sent, const std::string& sent,
                     const std::string& rounds_received, const std::string& received) {
    return judge(
        {"backend nccl; " + rounds_sent + "send n=" + sent + " peer=1 async open; hung",
         "backend nccl; " + rounds_received + "recv n=" + received + " peer=0 async open; hung"});
  };
  const std::string sends = repeated("send n=8 peer=1 async; ", 2);
  const std::string receives = repeated("recv n=8 peer=0 async; ", 2);
  EXPECT_THAT(of(sends, "16", receives, "8"), HasSubstr("p2p-size error observed culprits=0"));
  EXPECT_THAT(of(sends, "8", receives, "16"), HasSubstr("p2p-size error observed culprits=1"));
  // The first messages; and sizes that change anyway.
  EXPECT_THAT(of("", "16", "", "8"), HasSubstr("p2p-size error observed group="));
  EXPECT_THAT(
      of(sends + "send n=4 peer=1 async; ", "16", receives + "recv n=4 peer=0 async; ", "8"),
      HasSubstr("p2p-size error observed group="));
}

// Values and their lengths, which rank 1 receives in the other order.
TEST(Matching, MessagesThatAreReceivedInAnotherOrder) {
  const auto of = [](const std::string& received) {
    const std::string sends = "send n=16 peer=1 async; send n=4 peer=1 async; ";
    const Report report =
        verify(program({"backend nccl; " + sends + "hung", "backend nccl; " + received + "hung"}));
    return report.findings.at(0);
  };
  const Finding crossed = of("recv n=4 peer=0 async; recv n=16 peer=0 async; ");
  EXPECT_EQ(crossed.rule, RuleId::p2p_size);
  EXPECT_THAT(crossed.why, HasSubstr("receives them in the other"));
  EXPECT_THAT(crossed.fix, HasSubstr("receive in the order of the sends"));
  // The look-alike: one message of another size.
  EXPECT_EQ(of("recv n=4 peer=0 async; recv n=4 peer=0 async; ").why, "");
}

// A validation of which rank 1 makes a round more, beside the training's next call.
TEST(Matching, ASizeThatDiffersBetweenTwoCallsOfTheProgram) {
  const std::string train = "all_reduce n=18 at=train.py:25; ";
  const std::string validate = "all_reduce n=2 at=train.py:11; ";
  const auto of = [&](const std::string& before) {
    const auto rank = [&](const std::string& last) {
      return before + last.substr(0, last.size() - 2) + " open; hung";
    };
    const Report report = verify(program({rank(train), rank(validate)}));
    return report.findings.at(0);
  };
  const Finding two_calls = of(repeated(train, 3) + repeated(validate, 4));
  EXPECT_EQ(two_calls.rule, RuleId::size_mismatch);
  EXPECT_THAT(two_calls.why, HasSubstr("two calls of the program"));
  EXPECT_THAT(two_calls.fix, HasSubstr("as many rounds of each loop"));
  // Where they never made both together, the lines may be two branches of one call.
  EXPECT_THAT(of("").fix, HasSubstr("pad to a common size"));
}

// Micro-batches that are reduced one by one, of which rank 1 has one more. No parameters are known.
TEST(Matching, ACallMadeOnceMoreInAStepMayBeOfAMicroBatch) {
  const auto of = [](const std::string& more_at) {
    const auto rank = [&](const std::string& more) {
      std::string out;
      for (int step = 0; step < 4; ++step)
        out += fmt::format("all_reduce n=9 at=a.py:7 step={0}; {1}barrier step={0}; ", step,
                           step == 2 ? more : "");
      return out + "clean";
    };
    const std::string more = "all_reduce n=9 step=2 at=" + more_at + "; ";
    return verify(program({rank(""), rank(more), rank("")})).findings.at(0);
  };
  EXPECT_THAT(of("a.py:7").fix, HasSubstr("synchronise in as many micro-batches"));
  EXPECT_THAT(of("a.py:9").fix, Not(HasSubstr("micro-batches")));
}

}  // namespace
}  // namespace lockstep::verify
