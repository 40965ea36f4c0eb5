// The steps of calls that meet: what shows that they are of different ones, and what does not.
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

TEST(Steps, EqualCallsOutOfStepAreSeenByTheirStep) {
  // All calls look alike; rank 1 left out the one of step 1 and then ran out of calls.
  EXPECT_THAT(
      judge({"all_reduce n=4 step=0; all_reduce n=4 step=1; all_reduce n=4 step=2 open; hung",
             "all_reduce n=4 step=0; all_reduce n=4 step=2; clean",
             "all_reduce n=4 step=0; all_reduce n=4 step=1; all_reduce n=4 step=2 open; hung"}),
      HasSubstr("missing-collective error proven culprits=1 group=world seq=1 step=1"));
}

TEST(Steps, StepLabelsAloneAccuseNobody) {
  EXPECT_EQ(judge({"all_reduce n=4 step=1; all_reduce n=4 step=2; clean",
                   "all_reduce n=4 step=0; all_reduce n=4 step=1; clean"}),
            "verdict clean");
}

// Rank 0 saves after step 1 and waits in a barrier, while rank 1 is in step 2.
TEST(Steps, AMessageHasOneStepNumber) {
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
TEST(Steps, ARankInALaterStepLeftOutWhatTheOthersStillCall) {
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
TEST(Steps, ARankInAnEarlierStepCallsTooMuch) {
  const std::string tokens =
      "all_reduce n=1 what=root step=0; all_reduce n=8 what=a step=0; all_reduce n=8 what=a "
      "step=0; "
      "all_reduce n=1 what=root step=1; all_reduce n=8 what=a step=1; all_reduce n=8 what=a "
      "step=1; ";
  const std::string next = tokens + "all_reduce n=1 what=root step=2 open; hung";
  EXPECT_THAT(judge({next, next, tokens + "all_reduce n=8 what=a step=1 open; hung"}),
              HasSubstr("extra-collective error proven culprits=2 group=world seq=6 step=1"));
}

// Rank 1 leaves out step 1, and makes as many calls as the others in the end.
TEST(Steps, AStepLeftOutByOneRank) {
  const std::string usual =
      "all_reduce n=4 what=w step=0; all_reduce n=4 what=w step=1; "
      "all_reduce n=4 what=w step=2; clean";
  const std::string skips =
      "all_reduce n=4 what=w step=0; all_reduce n=4 what=w step=2; "
      "all_reduce n=4 what=w step=3; clean";
  EXPECT_EQ(judge({usual, skips, usual}),
            "step-mismatch error observed culprits=1 group=world seq=1 step=1\nverdict findings");
  // Between two, it is the one without a call in that step: it has one in its others.
  EXPECT_EQ(judge({usual, skips}),
            "step-mismatch error observed culprits=1 group=world seq=1 step=1\nverdict findings");
}

// Rank 1 has fewer batches: under Join it calls for the others' steps, in its own last one.
TEST(Steps, ARankThatMirrorsItsPeersUnderJoinIsInNoStep) {
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

// Calls before the first step have none, as a broadcast of the parameters.
TEST(Steps, StepsAreComparedAfterCallsThatHaveNone) {
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
TEST(Steps, LinesShowThatACallIsOfAnotherStep) {
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

// Nobody knows what was meant by calls whose parameters are not recorded.
TEST(Steps, AStepLeftOutOfUnnamedCallsIsAWarning) {
  const auto calls = [](const std::vector<int>& steps) {
    std::string out;
    for (const int s : steps) out += "all_reduce n=4 step=" + std::to_string(s) + "; ";
    return out + "clean";
  };
  EXPECT_EQ(judge({calls({0, 1, 2}), calls({0, 2, 3}), calls({0, 1, 2})}),
            "step-mismatch warning observed culprits=1 group=world seq=1 step=1\nverdict findings");
}

TEST(Steps, AStepLeftOutInAHangIsTheMissingCall) {
  const std::string usual =
      "all_reduce n=4 what=w step=0; all_reduce n=4 what=w step=1; "
      "all_reduce n=4 what=w step=2 open; hung";
  EXPECT_THAT(
      judge({usual, "all_reduce n=4 what=w step=0; all_reduce n=4 what=w step=2; clean", usual}),
      Not(HasSubstr("step-mismatch")));
}

// A label that a loader's thread reads as the step changes, an epoch's last call counted otherwise,
// ranks that count from different numbers.
TEST(Steps, LabelsThatAreLateAreNoOtherSteps) {
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

TEST(Steps, StepsThatWereNotRecordedCannotDiffer) {
  EXPECT_EQ(judge({"all_reduce n=4 step=0; all_reduce n=4; all_reduce n=4; clean",
                   "all_reduce n=4 step=0; all_reduce n=4 step=2; all_reduce n=4 step=3; clean"}),
            "verdict clean");
}

}  // namespace
}  // namespace lockstep::verify
