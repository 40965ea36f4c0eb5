// The job in one process that a distributed one is measured against.
#include "runtime/job/scenario_variants.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/job/scenario.h"

namespace lockstep::runtime {
namespace {

using ::testing::HasSubstr;

Scenario parsed_for_reference(const std::string& rest) {
  return parse_scenario("lockstep: 1\nname: x\nranks: 4\nwatch: {every: 1}\n" + rest, "job.yaml")
      .value();
}

Scenario reference(const std::string& rest) {
  return reference_of(parsed_for_reference(rest)).value();
}

TEST(Reference, IsOneProcessWithoutStrategyThatKeepsRemedyAndPrecision) {
  const Scenario s = reference(
      "strategy: {kind: ddp, find_unused_parameters: true}\n"
      "remedy: {kind: gradient-mask, average: contributors}\ntrain: {precision: bfloat16}");
  EXPECT_EQ(s.ranks, 1);
  EXPECT_EQ(s.strategy.kind, Scenario::Strategy::Kind::manual);
  EXPECT_FALSE(s.strategy.find_unused_parameters);
  EXPECT_EQ(s.remedy.kind, Scenario::Remedy::Kind::gradient_mask);
  EXPECT_EQ(s.remedy.average, Scenario::Remedy::Average::contributors);
  EXPECT_EQ(s.train.precision, Scenario::Train::Precision::bfloat16);
}

TEST(Reference, PutsRightWhatIsWrongOnPurpose) {
  const Scenario dummy = reference("remedy: dummy-image\nfault: dummy-outside-graph");
  EXPECT_EQ(dummy.remedy.kind, Scenario::Remedy::Kind::dummy_image);
  EXPECT_EQ(dummy.fault, Fault::none);
  const Scenario mask =
      reference("remedy: {kind: gradient-mask, average: contributors}\nfault: diluted-average");
  EXPECT_EQ(mask.remedy.average, Scenario::Remedy::Average::contributors);
  EXPECT_EQ(mask.fault, Fault::none);
}

TEST(Reference, APipelinesMicroBatchesAreAccumulated) {
  const Scenario s = reference("strategy: {kind: pipeline, micro_batches: 2}");
  EXPECT_EQ(s.train.accumulation.steps, 2);
}

TEST(Reference, IsRefusedWithTheReason) {
  const auto why = [](const Scenario& s) {
    const auto made = reference_of(s);
    return made ? std::string("made") : made.error().str();
  };
  EXPECT_THAT(why(parsed_for_reference("model: {negatives: global}")),
              HasSubstr("features of all ranks"));
  EXPECT_THAT(why(parsed_for_reference("data: {balance: cost}")), HasSubstr("distribute"));
  EXPECT_THAT(why(parsed_for_reference("model: {head: fusion}")), HasSubstr("dropout"));
  EXPECT_THAT(why(parsed_for_reference("model: {text: minilm}")), HasSubstr("dropout"));
  EXPECT_THAT(why(parsed_for_reference("strategy: {kind: manual, process_groups: image-ranks}")),
              HasSubstr("among themselves"));
  EXPECT_EQ(why(parse_scenario("lockstep: 1\nname: x\n", "job.yaml").value()), "made")
      << "losses are recorded whether values are watched or not";
}

// Which remedies a scenario could take.

using ::testing::Contains;
using ::testing::Not;

std::vector<std::string> names_of_choices(const std::string& rest) {
  std::vector<std::string> out;
  const auto choices = remedy_choices("lockstep: 1\nname: x\n" + rest, "job.yaml");
  for (const RemedyChoice& choice : *choices) {
    EXPECT_TRUE(parse_scenario(choice.text, "changed.yaml")) << choice.name;
    out.push_back(choice.name);
  }
  return out;
}

TEST(RemedyChoices, AreThoseThatTheStrategyTakes) {
  EXPECT_THAT(names_of_choices("strategy: ddp"), Contains("find unused"));
  EXPECT_THAT(names_of_choices("strategy: manual"), Not(Contains("find unused")));
  EXPECT_THAT(names_of_choices("strategy: pipeline"),
              testing::ElementsAre("alternating", "balanced sampler", "dealt groups"));
  EXPECT_THAT(names_of_choices(""), Contains("find unused"));
}

TEST(RemedyChoices, LeavesOutTheRemedyThatTheScenarioHas) {
  EXPECT_THAT(names_of_choices("remedy: dummy-image"), Not(Contains("dummy images")));
  EXPECT_THAT(names_of_choices("remedy: dummy-image\nfault: dummy-outside-graph"),
              Contains("dummy images"));
  EXPECT_THAT(names_of_choices("data: {sampler: balanced}"), Not(Contains("balanced sampler")));
}

TEST(RemedyChoices, RulesGiveWayWhereTheRemedySaysWhoHasWhat) {
  const auto choices = remedy_choices(
      "lockstep: 1\nname: x\ndata: {modality: [{ranks: [1], has: [text]}]}\n", "job.yaml");
  ASSERT_TRUE(choices);
  for (const RemedyChoice& choice : *choices) {
    const Scenario s = parse_scenario(choice.text, "changed.yaml").value();
    EXPECT_EQ(s.data.modality.empty(), choice.name == "alternating" ||
                                           choice.name == "balanced sampler" ||
                                           choice.name == "dealt groups")
        << choice.name;
  }
}

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
