// Scenario files that are right: what they say arrives in the struct.
#include "runtime/job/scenario.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Scenario parsed_text(const std::string& text) {
  Result<Scenario> scenario = parse_scenario(text, "job.yaml");
  EXPECT_TRUE(scenario) << (scenario ? "" : scenario.error().str());
  return scenario ? *scenario : Scenario{};
}

TEST(Scenario, WhatIsLeftOutHasTheDefaultsOfTheStruct) {
  Scenario expected;
  expected.file = "job.yaml";
  expected.name = "small";
  EXPECT_EQ(parsed_text("lockstep: 1\nname: small\n"), expected);
}

TEST(Scenario, TheExampleThatAPersonWouldWrite) {
  const Scenario s = parsed_text(R"(
lockstep: 1
name: text-only ranks under DDP
ranks: 4
backend: gloo
model: {image: resnet-small, text: bert-small, head: contrastive}
data: {source: shapes, modality: {rank 1: [text], rank 3: [text]}}
strategy: {kind: ddp, find_unused_parameters: false}
remedy: none
train: {steps: 6, batch_size: 8, optimizer: adamw, lr: 1e-3, seed: 1}
expect: {verdict: findings, rules: [modality-divergence], culprits: [1, 3], step: 0}
)");
  EXPECT_EQ(s.name, "text-only ranks under DDP");
  EXPECT_EQ(s.ranks, 4);
  EXPECT_EQ(s.strategy.kind, Scenario::Strategy::Kind::ddp);
  EXPECT_DOUBLE_EQ(s.train.lr, 1e-3);
  ASSERT_NE(s.rule_for(3, 5), nullptr);
  EXPECT_THAT(s.rule_for(3, 5)->has, ElementsAre(Modality::text));
  EXPECT_EQ(s.rule_for(2, 5), nullptr);
  ASSERT_TRUE(s.expect);
  EXPECT_EQ(s.expect->verdict, "findings");
  EXPECT_THAT(*s.expect->culprits, ElementsAre(1, 3));
  EXPECT_EQ(s.expect->step, 0);
}

TEST(Scenario, WhoAsksForWatchedValuesGetsThoseOfEveryTenthStep) {
  EXPECT_EQ(parsed_text("lockstep: 1\nname: x\n").watch.every, 0);
  EXPECT_EQ(parsed_text("lockstep: 1\nname: x\nwatch: {}\n").watch.every, 10);
  EXPECT_EQ(parsed_text("lockstep: 1\nname: x\nwatch: {sketch: 0}\n").watch.every, 10);
  EXPECT_EQ(parsed_text("lockstep: 1\nname: x\nwatch: {every: 1}\n").watch.every, 1);
  EXPECT_EQ(parsed_text("lockstep: 1\nname: x\nwatch: {every: 0}\n").watch.every, 0);
}

TEST(Scenario, TheFirstRuleThatFitsARankAndStepDecides) {
  const Scenario s = parsed_text(R"(
lockstep: 1
name: rules
ranks: 4
data:
  modality:
    - {ranks: [1, 3], steps: [2], has: [text]}
    - {steps: [2, 3], has: [text, image]}
)");
  EXPECT_THAT(s.rule_for(1, 2)->has, ElementsAre(Modality::text));
  EXPECT_THAT(s.rule_for(0, 2)->has, ElementsAre(Modality::image, Modality::text));
  EXPECT_THAT(s.rule_for(1, 3)->has, ElementsAre(Modality::image, Modality::text));
  EXPECT_EQ(s.rule_for(1, 4), nullptr);
}

TEST(Scenario, AStrategyMayBeItsNameAlone) {
  Scenario::Strategy manual;
  manual.kind = Scenario::Strategy::Kind::manual;
  EXPECT_EQ(parsed_text("{lockstep: 1, name: x, strategy: manual}").strategy, manual);
  EXPECT_EQ(parsed_text("{lockstep: 1, name: x, strategy: ddp}").strategy, Scenario::Strategy{});
}

TEST(Scenario, APipelineAndItsReplicas) {
  const Scenario s = parsed_text(R"(
lockstep: 1
name: pipeline
ranks: 4
strategy: {kind: pipeline, schedule: 1f1b, micro_batches: 6}
fault: crossed-stages
)");
  EXPECT_EQ(s.strategy.kind, Scenario::Strategy::Kind::pipeline);
  EXPECT_EQ(s.strategy.schedule, Scenario::Strategy::Schedule::one_f_one_b);
  EXPECT_EQ(s.fault, Fault::crossed_stages);
  EXPECT_EQ(s.ranks_of_replica(), 2);
  EXPECT_EQ(s.micro_batches(3), 6);
  const Scenario plain = parsed_text("{lockstep: 1, name: x, train: {accumulation: 3}}");
  EXPECT_EQ(plain.strategy.schedule, Scenario::Strategy::Schedule::gpipe);
  EXPECT_EQ(plain.fault, Fault::none);
  EXPECT_EQ(plain.ranks_of_replica(), 1);
  EXPECT_EQ(plain.micro_batches(0), 3);
}

TEST(Scenario, FullyShardedOverSomeOfTheRanks) {
  const Scenario s = parsed_text(R"(
lockstep: 1
name: hybrid
ranks: 4
strategy: {kind: fsdp, shard_ranks: 2, prefetch: false}
train: {clip: {image: 1}}
fault: clip-local-norm
)");
  EXPECT_EQ(s.strategy.kind, Scenario::Strategy::Kind::fsdp);
  EXPECT_EQ(s.strategy.shard_ranks, 2);
  EXPECT_FALSE(s.strategy.prefetch);
  EXPECT_EQ(s.fault, Fault::clip_local_norm);
  const Scenario plain = parsed_text("{lockstep: 1, name: x, strategy: fsdp}");
  EXPECT_EQ(plain.strategy.shard_ranks, 0);
  EXPECT_TRUE(plain.strategy.prefetch);
}

TEST(Scenario, EveryOtherChoice) {
  const Scenario s = parsed_text(R"(
lockstep: 1
name: "yes"
description: |
  Two lines
  of text.
data: {items: 64, text_only: 0.25, sampler: grouped}
model: {embed_dim: 16, freeze: [image_encoder., text_encoder.]}
strategy: {kind: manual, process_groups: per-modality}
remedy: dummy-image
fault: dummy-outside-graph
train: {optimizer: sgd, evaluate: true, weight_decay: 0}
limits: {hang_after_s: 2.5, total_s: 60}
expect: {verdict: clean, ends: completed}
)");
  EXPECT_EQ(s.name, "yes");
  EXPECT_EQ(s.description, "Two lines\nof text.\n");
  EXPECT_DOUBLE_EQ(s.data.text_only, 0.25);
  EXPECT_EQ(s.data.sampler, Scenario::Data::Sampler::grouped);
  EXPECT_THAT(s.model.freeze, ElementsAre("image_encoder.", "text_encoder."));
  EXPECT_EQ(s.strategy.process_groups, Scenario::Strategy::Groups::per_modality);
  EXPECT_EQ(s.remedy.kind, Scenario::Remedy::Kind::dummy_image);
  EXPECT_EQ(s.fault, Fault::dummy_outside_graph);
  EXPECT_EQ(s.train.optimizer, Scenario::Train::Optimizer::sgd);
  EXPECT_TRUE(s.train.evaluate);
  EXPECT_DOUBLE_EQ(s.limits.hang_after_s, 2.5);
  EXPECT_EQ(s.expect->ends, Scenario::Expect::Ends::completed);
  EXPECT_FALSE(s.expect->culprits);
}

TEST(Scenario, WhatTheTrainingLoopTakes) {
  const Scenario s = parsed_text(R"(
lockstep: 1
name: loop
ranks: 4
model: {negatives: global, activation_checkpointing: blocks}
data: {outliers: [{ranks: [1], steps: [2], factor: 1e6}]}
remedy: {kind: gradient-mask, average: contributors}
train:
  accumulation: {steps: 2, rank 3: 1}
  schedule: {warmup_steps: 3, decay: cosine}
  clip: {image: 1, text: 0.5}
  precision: float16
  loss_scale: {initial: 1024}
  generate:
    {every: 2, tokens: 5, synced: true, ends: [{ranks: [1], steps: [3], after: 2}, {after: 4}]}
fault: local-overflow
)");
  EXPECT_EQ(s.model.negatives, Scenario::Model::Negatives::global);
  EXPECT_DOUBLE_EQ(s.outlier_factor(1, 2), 1e6);
  EXPECT_DOUBLE_EQ(s.outlier_factor(1, 3), 1);
  EXPECT_DOUBLE_EQ(s.outlier_factor(0, 2), 1);
  EXPECT_EQ(s.remedy.kind, Scenario::Remedy::Kind::gradient_mask);
  EXPECT_EQ(s.remedy.average, Scenario::Remedy::Average::contributors);
  EXPECT_EQ(s.train.accumulation.of(0), 2);
  EXPECT_EQ(s.train.accumulation.of(3), 1);
  EXPECT_EQ(s.train.schedule.warmup_steps, 3);
  EXPECT_EQ(s.train.schedule.decay, Scenario::Train::Schedule::Decay::cosine);
  EXPECT_EQ(s.train.clip.image, 1);
  EXPECT_EQ(s.train.clip.text, 0.5);
  EXPECT_FALSE(s.train.clip.fusion);
  EXPECT_EQ(s.train.precision, Scenario::Train::Precision::float16);
  EXPECT_DOUBLE_EQ(s.train.loss_scale.initial, 1024);
  EXPECT_EQ(s.fault, Fault::local_overflow);
  EXPECT_EQ(s.model.activation_checkpointing, Scenario::Model::Checkpointing::blocks);
  EXPECT_TRUE(s.train.generate.synced);
  EXPECT_EQ(s.generated_tokens(1, 3), 2);
  EXPECT_EQ(s.generated_tokens(1, 1), 4);
  EXPECT_EQ(s.generated_tokens(1, 2), 0);  // only after every second step
}

TEST(Scenario, AccumulationMayBeOneNumber) {
  EXPECT_EQ(
      parsed_text("{lockstep: 1, name: x, train: {accumulation: 4}}").train.accumulation.of(1), 4);
}

TEST(Scenario, NoCulpritsIsAnExpectationToo) {
  const Scenario s =
      parsed_text("{lockstep: 1, name: x, expect: {verdict: findings, culprits: []}}");
  ASSERT_TRUE(s.expect->culprits);
  EXPECT_THAT(*s.expect->culprits, IsEmpty());
}

TEST(Scenario, AnchorsMayBeUsed) {
  const Scenario s = parsed_text(R"(
lockstep: 1
name: anchors
data:
  modality:
    - {ranks: [0], has: &text_only [text]}
    - {ranks: [1], has: *text_only}
)");
  EXPECT_THAT(s.rule_for(1, 0)->has, ElementsAre(Modality::text));
}

TEST(Scenario, IsReadFromAFile) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "lockstep_scenario_test.yaml";
  std::ofstream(path) << "lockstep: 1\nname: from a file\n";
  Result<Scenario> s = load_scenario(path.string());
  ASSERT_TRUE(s);
  EXPECT_EQ(s->name, "from a file");
  EXPECT_EQ(s->file, path.string());
  std::filesystem::remove(path);
  EXPECT_FALSE(load_scenario(path.string()));
}

TEST(Scenario, EveryShippedScenarioLoads) {
  int count = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(
           std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "scenarios")) {
    if (entry.path().extension() != ".yaml") continue;
    Result<Scenario> s = load_scenario(entry.path().string());
    EXPECT_TRUE(s) << s.error().str();
    ++count;
  }
  EXPECT_GT(count, 0);
}

TEST(Scenario, KnowsWhichRanksEverHaveImages) {
  const auto ranks = [](const std::string& modality) {
    const std::string text =
        "{lockstep: 1, name: x, ranks: 4, train: {steps: 3}, data: {modality: " + modality + "}}";
    return parse_scenario(text, "job.yaml").value().ranks_with_images(4);
  };
  using Ranks = std::vector<std::int32_t>;
  EXPECT_EQ(ranks("[]"), (Ranks{0, 1, 2, 3}));
  EXPECT_EQ(ranks("{rank 1: [text], rank 3: [image, text]}"), (Ranks{0, 2, 3}));
  EXPECT_EQ(ranks("[{ranks: [1], steps: [0], has: [text]}, {ranks: [2], has: [text]}]"),
            (Ranks{0, 1, 3}));
  // Rank 0 has none in any of its three steps, one rule after the other.
  EXPECT_EQ(ranks("[{steps: [0, 1], has: [text]}, {ranks: [0], steps: [2], has: [text]}]"),
            (Ranks{1, 2, 3}));
  EXPECT_EQ(ranks("[{has: [text]}, {ranks: [1], has: [image, text]}]"), Ranks{});
  EXPECT_EQ(ranks("[{ranks: [1], steps: [2], has: [image, text]}, {has: [text]}]"), Ranks{1});
}

}  // namespace
}  // namespace lockstep::runtime
