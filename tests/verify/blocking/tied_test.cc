// Ranks that wait for each other in different calls: what tells which of them deviates, and what
// does not.
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

TEST(Tied, AnExtraCallThatIsTheLastMayComeAfterSkippedOnes) {
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
TEST(Tied, NobodyOfTwoIsNamedIfOneLeavesALoop) {
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
TEST(Tied, NobodyOfTwoThatAverageInDifferentStepsIsNamed) {
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

// One rank validates a batch more than the other, or less.
TEST(Tied, NobodyOfTwoIsNamedIfOneReducesWhereTheOtherGathers) {
  const std::string batches = "all_gather n=16 at=a.py:4; all_gather n=16 at=a.py:4; ";
  EXPECT_EQ(judge({batches + "all_reduce n=1 at=a.py:5 open; hung",
                   batches + "all_gather n=16 at=a.py:4 open; hung"}),
            "op-mismatch error proven group=world seq=2\nverdict findings");
}

// A sharded job in its first step. That rank 0 got further, to a second such call, says nothing.
TEST(Tied, NobodyOfTwoThatBeginDifferentlyIsNamed) {
  EXPECT_EQ(judge({"all_gather_into_tensor in=8 out=16 at=a.py:3; "
                   "all_gather_into_tensor in=4 out=8 at=a.py:5 open; hung",
                   "all_gather_into_tensor in=4 out=8 at=a.py:5 open; cut"}),
            "missing-collective error proven group=world seq=0\nverdict findings");
}

// What came before a call says nothing where several threads issue calls. Rank 0 left one out in
// group b, or rank 1 made one too many.
TEST(Tied, TheOrderOfCallsOfSeveralThreadsAccusesNobody) {
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
TEST(Tied, ACallMadeOnceMoreMayStandForOneLeftOut) {
  const std::string step = "all_reduce n=36 at=a.py:2; all_reduce n=1 at=a.py:5; ";
  const std::string others =
      step + "all_reduce n=36 at=a.py:2; all_reduce n=1 at=a.py:5 open; hung";
  const Report report = verify(program(
      {others, step + "all_reduce n=36 at=a.py:2; all_reduce n=36 at=a.py:2 open; cut", others}));
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].culprits, std::vector<trace::Rank>{trace::Rank(1)});
  EXPECT_THAT(report.findings[0].why, HasSubstr("or it made the one before it once more"));
}

TEST(Tied, TheMoreCommonOfTwoNewOperationsIsNoMoreRight) {
  const std::string logs = "all_reduce n=8 at=a.py:2; all_reduce n=1 at=a.py:5 open; hung";
  const std::string evaluates = "all_reduce n=8 at=a.py:2; all_gather n=3 at=a.py:9 open; hung";
  EXPECT_EQ(judge({logs, evaluates}),
            "op-mismatch error proven group=world seq=1\nverdict findings");
  EXPECT_THAT(judge({logs, evaluates, logs}), HasSubstr("culprits=1"));
}

// Two pairs that exchange as many messages as their data need. Rank 2 ends a step before all
// others.
TEST(Tied, TheStepsInWhichOthersEndTellWhoEndedEarly) {
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
TEST(Tied, TheFirstCallOfAGroupMayBeOneTooMany) {
  const std::string pair = "group pair 2,3; ";
  const std::string round = "all_reduce g=pair n=4; all_reduce g=pair n=4; ";
  EXPECT_THAT(judge({"clean", "clean", pair + round + round + "all_reduce n=1 open; hung",
                     pair + round + round + "all_reduce g=pair n=4 open; hung"}),
              HasSubstr("extra-collective error proven culprits=2"));
}

// The first barrier of the job: rank 3 stopped, and rank 0 alone came to it, as its tensor group
// has no part in what the others wait for.
TEST(Tied, TheFirstCallOfAGroupIsNotTooManyWhereARankStopped) {
  const std::string own = "group a 0; ", pair = "group b 1,2,3; ";
  const std::string round = "all_reduce g=b n=4; ";
  EXPECT_THAT(judge({own + "barrier open; hung", pair + round + "all_reduce g=b n=4 open; hung",
                     pair + round + "all_reduce g=b n=4 open; hung", pair + round + "hung"}),
              HasSubstr("host-stall error proven culprits=3"));
}

// A trainer and the first of two rollout workers run different programs: where these diverge, no
// rank does anything unusual.
TEST(Tied, RanksOfDifferentRolesAreNotCompared) {
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

}  // namespace
}  // namespace lockstep::verify
