// Plans of several towers: what is read, and what is refused, where and why.
#include "sim/multimodal/multimodal_plan.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/plan_text.h"

namespace lockstep::sim {
namespace {

using ::testing::HasSubstr;

constexpr const char* kTowersPlan = R"(plan: 1
name: small
calibration: h100-cluster
gpus: 64
global_batch: 64
llm:
  model: {layers: 16, hidden: 2048, heads: 16, vocabulary: 32000}
  sequence: 4096
  tensor: 4
  pipeline: {stages: 2}
encoders:
  - {name: vit, input: image, model: vit-huge, merge: 4, tensor: 4}
data:
  text: 1000
  image: {per_sample: {poisson: 1}, size: {lognormal: [576, 0.5], most: 4096}}
)";

// The text with `from` replaced once.
std::string with(const std::string& from, const std::string& to) {
  std::string out = kTowersPlan;
  const std::size_t at = out.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return out.replace(at, from.size(), to);
}

Error error_of_plan(const std::string& text, const std::string& manifest = {}) {
  const auto plan = parse_multimodal_plan(text, "p.yaml", manifest);
  EXPECT_FALSE(plan) << text;
  return plan ? Error{} : plan.error();
}

TEST(TowersPlan, IsReadWithItsDefaults) {
  const auto plan = parse_multimodal_plan(kTowersPlan, "p.yaml", "");
  ASSERT_TRUE(plan) << plan.error().str();
  EXPECT_EQ(plan->llm.plan.data, 8);
  EXPECT_EQ(plan->llm.model.layers, 16);
  ASSERT_EQ(plan->encoders.size(), 1U);
  const EncoderTower& tower = plan->encoders[0];
  EXPECT_EQ(tower.model.layers, 32);
  EXPECT_EQ(tower.place, EncoderPlace::first_stage);
  EXPECT_EQ(tower.layout.data, 1);
  EXPECT_EQ(tower.projector_hidden, 2048);
  EXPECT_EQ(plan->data.seed, 1U);
}

TEST(TowersPlan, EncodersInTheTensorGroupAreDataParallelThere) {
  const auto plan = parse_multimodal_plan(with("merge: 4, tensor: 4", "tensor: 1"), "p.yaml", "");
  ASSERT_TRUE(plan) << plan.error().str();
  EXPECT_EQ(plan->encoders[0].layout.data, 4);
}

TEST(TowersPlan, OwnGpusAreTakenFromAll) {
  const auto plan = parse_multimodal_plan(
      with("merge: 4, tensor: 4", "on: own_gpus, gpus: 32, tensor: 2, stages: 2"), "p.yaml", "");
  ASSERT_TRUE(plan) << plan.error().str();
  EXPECT_EQ(plan->llm.plan.ranks(), 32);
  EXPECT_EQ(plan->encoders[0].layout.data, 8);
}

struct Refusal {
  std::string from, to, why;
  int line;
};

TEST(TowersPlan, WhatCannotBeIsRefusedWithItsLine) {
  for (const Refusal& bad : std::vector<Refusal>{
           {"tensor: 4}", "tensor: 3}", "heads 16 of vit do not divide by tensor 3", 12},
           {"tensor: 4}", "tensor: 8}", "4 GPUs of the LLM", 12},
           {"vit-huge", "vit-hug",
            "no published encoder is known as \"vit-hug\"; did you mean \"vit-huge\"?", 12},
           {"tensor: 4}", "gpus: 8}", "\"gpus\" is of an encoder on its own GPUs", 12},
           {"tensor: 4}", "on: own_gpus}", "does not say how many", 12},
           {"tensor: 4}", "on: own_gpus, gpus: 64}", "of 64 GPUs the encoders have all", 4},
           {"tensor: 4}", "on: own_gpus, gpus: 48, tensor: 16}", "3 replicas of the encoder for 2",
            12},
           {"tensor: 4\n", "tensor: 5\n", "do not divide by tensor x context", 4},
           {"text: 1000", "texts: 1000", "texts", 14},
           {"{poisson: 1}", "{poisson: 1, uniform: [1, 2]}", "these are 2 distributions", 15},
           {"{poisson: 1}", "{uniform: [3, 1]}", "goes down", 15},
           {"{poisson: 1}", "{most: 1}", "this is not a distribution", 15},
           {"{poisson: 1}", "{choice: [[0, 1], [0.5, 1]]}", "0.5 is no whole number", 15},
           {"{poisson: 1}", "{lognormal: [0, 1]}", "a median above 0", 15},
           {"input: image", "input: audio", "no encoder takes in image", 15},
           {"stages: 2}", "stages: 2, schedule: interleaved, split: balanced}", "balanced split",
            10}}) {
    const Error error = error_of_plan(with(bad.from, bad.to));
    EXPECT_THAT(error.message, HasSubstr(bad.why)) << bad.to;
    EXPECT_EQ(error.location.file, "p.yaml");
    EXPECT_EQ(error.location.line, bad.line) << bad.to << ": " << error.str();
    EXPECT_FALSE(error.fix.empty()) << bad.to;
  }
}

// A bandwidth over which nothing goes; an explicit `false` shows that this is meant.
TEST(TowersPlan, OffloadNeedsSomethingToOffload) {
  const std::string alone = kTowersPlan + std::string("offload: {bandwidth: 5GB/s}\n");
  const Error error = error_of_plan(alone);
  EXPECT_THAT(error.message, HasSubstr("makes no difference"));
  EXPECT_EQ(error.location.line, 16);
  for (const std::string meant : {"activations: true", "optimizer: true", "activations: false"})
    EXPECT_TRUE(parse_multimodal_plan(
        kTowersPlan + ("offload: {bandwidth: 5GB/s, " + meant + "}\n"), "p.yaml", ""))
        << meant;
}

TEST(TowersPlan, SomethingIsTrained) {
  const Error error = error_of_plan(
      with("merge: 4, tensor: 4", "frozen: true, projector: {frozen: true}")
          .replace(std::string(kTowersPlan).find("  sequence"), 0, "  frozen: true\n"));
  EXPECT_THAT(error.message, HasSubstr("nothing is trained"));
}

TEST(TowersPlan, AManifestReplacesDistributions) {
  const std::string text =
      std::string(kTowersPlan).substr(0, std::string(kTowersPlan).find("data:")) +
      "data: {manifest: samples.jsonl}\n";
  const auto plan = parse_multimodal_plan(text, "p.yaml", "{\"text\": 5, \"image\": [64]}\n");
  ASSERT_TRUE(plan) << plan.error().str();
  EXPECT_EQ(plan->data.manifest.size(), 1U);
  EXPECT_THAT(error_of_plan(text, "{").location.file, "samples.jsonl");
  EXPECT_THAT(error_of_plan(text, "{\"text\": 5, \"audio\": [64]}\n").message,
              HasSubstr("samples have audio, and no encoder takes it in"));
  EXPECT_THAT(error_of_plan(text + "  text: 5\n", "{}").message,
              testing::Not(HasSubstr("trained")));
}

}  // namespace
}  // namespace lockstep::sim
