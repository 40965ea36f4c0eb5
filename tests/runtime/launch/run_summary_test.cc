#include "runtime/launch/run_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/launch/scenario_files.h"

namespace lockstep::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A job that was stopped because ranks 1 and 3 diverged at step 2.
JobOutcome diverged() {
  JobOutcome outcome;
  outcome.end = JobEnd::stopped;
  outcome.report.verdict = verify::Verdict::findings;
  verify::Finding finding;
  finding.rule = verify::RuleId::modality_divergence;
  finding.culprits = {trace::Rank(1), trace::Rank(3)};
  finding.step = 2;
  outcome.report.findings = {finding};
  return outcome;
}

Scenario::Expect expected() {
  Scenario::Expect out;
  out.verdict = "findings";
  out.rules = {"deadlock", "modality-divergence"};
  out.culprits = std::vector{1, 3};
  out.step = 2;
  out.ends = Scenario::Expect::Ends::stopped;
  return out;
}

TEST(Expectation, AllIsAsExpected) { EXPECT_THAT(differences(expected(), diverged()), IsEmpty()); }

TEST(Expectation, WhatIsLeftOutIsNotCompared) {
  Scenario::Expect only_verdict;
  only_verdict.verdict = "findings";
  EXPECT_THAT(differences(only_verdict, diverged()), IsEmpty());
}

TEST(Expectation, EveryDifferenceIsNamed) {
  Scenario::Expect other = expected();
  other.rules = {"host-stall"};
  other.culprits = std::vector<int>{};
  other.step = 0;
  other.ends = Scenario::Expect::Ends::completed;
  EXPECT_THAT(differences(other, diverged()),
              ElementsAre("expected the job to be completed, found stopped",
                          "expected rule host-stall, found modality-divergence",
                          "expected culprits none, found 1,3", "expected step 0, found 2"));
}

TEST(Expectation, ACleanReportWhereFindingsWereExpected) {
  JobOutcome clean;
  Scenario::Expect rules_only;
  rules_only.verdict = "findings";
  rules_only.rules = {"deadlock"};
  EXPECT_THAT(differences(rules_only, clean), ElementsAre("expected verdict findings, found clean",
                                                          "expected rule deadlock, found none"));
}

TEST(Expectation, RulesThatDoNotExistAreFoundBeforeAnythingRuns) {
  Scenario scenario;
  scenario.file = "job.yaml";
  scenario.expect = expected();
  EXPECT_FALSE(unknown_rule(scenario));
  scenario.expect->rules = {"dead-lock"};
  ASSERT_TRUE(unknown_rule(scenario));
  EXPECT_EQ(unknown_rule(scenario)->str(),
            "job.yaml: error: \"expect.rules\" has an unknown rule: \"dead-lock\"\n"
            "  fix: did you mean \"deadlock\"?");
}

}  // namespace
}  // namespace lockstep::runtime
