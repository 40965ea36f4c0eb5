#include <string>

#include <gtest/gtest.h>

#include "runtime/job/scenario.h"
#include "runtime/job/scenario_variants.h"

namespace lockstep::runtime {
namespace {

const std::string kJob = R"(lockstep: 1
name: a job
ranks: 4
strategy: ddp
watch: {every: 1}
train: {steps: 6, seed: 3, evaluate: true, checkpoint: {folder: none, every: 2, resume: true}}
expect: {verdict: clean, ends: completed}
)";

Scenario changed(const SimulatedChange& change) {
  const auto text = simulated_scenario(kJob, "job.yaml", change);
  EXPECT_TRUE(text) << text.error().str();
  return *parse_scenario(*text, "job.yaml");
}

TEST(SimulatedScenario, KeepsWhatIsTrainedEvaluatedAndSavedAndLeavesOutTheRest) {
  const Scenario scenario = changed({});
  EXPECT_EQ(scenario.ranks, 4);
  EXPECT_EQ(scenario.train.steps, 6);
  EXPECT_EQ(scenario.train.seed, 3U);
  EXPECT_EQ(scenario.watch.every, 0);
  EXPECT_TRUE(scenario.train.evaluate);
  EXPECT_EQ(scenario.train.checkpoint.every, 2);
  EXPECT_FALSE(scenario.train.checkpoint.resume);
  EXPECT_FALSE(scenario.expect);
}

TEST(SimulatedScenario, HasAsManyRanksAndStepsAsAskedFor) {
  const Scenario scenario = changed({512, 2});
  EXPECT_EQ(scenario.ranks, 512);
  EXPECT_EQ(scenario.train.steps, 2);
}

TEST(SimulatedScenario, WhatIsWrongWithTheJobItselfIsSaidWithItsLine) {
  const auto text = simulated_scenario("lockstep: 1\nname: n\nrank: 2\n", "job.yaml", {});
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().location.line, 3);
}

TEST(SimulatedScenario, ARuleForARankThatIsNoMoreIsRefused) {
  const std::string job =
      "lockstep: 1\nname: n\nranks: 4\ndata: {modality: [{ranks: [3], has: [text]}]}\n";
  EXPECT_TRUE(simulated_scenario(job, "job.yaml", {8, std::nullopt}));
  const auto text = simulated_scenario(job, "job.yaml", {2, std::nullopt});
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().location.file, "job.yaml");
}

}  // namespace
}  // namespace lockstep::runtime
