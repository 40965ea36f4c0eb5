// Plan files: what is read, and that everything that cannot be is refused with its location.
#include "sim/transformer/plan_file.h"

#include <initializer_list>
#include <ostream>
#include <regex>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/transformer/transformer.h"
#include "tests/sim/plan_text.h"

namespace lockstep::sim {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A line for each key, so that a refusal's line tells the key.
constexpr const char* kPlanText = R"(plan: 1
name: small
calibration: a100-cluster
model:
  layers: 16
  hidden: 1024
  heads: 16
  kv_heads: 8
  ffn: 4096
  vocabulary: 51200
sequence: 2048
gpus: 64
gpu_memory: 80GB
tensor: 4
sequence_parallel: true
context: 2
pipeline:
  stages: 4
  schedule: 1f1b
zero: 1
micro_batch: 2
global_batch: 64
recompute: selective
)";

// kPlan with the line of `key` as `line`; a line more where there is no such key.
std::string with(const std::string& key, const std::string& line) {
  const std::string text = kPlanText;
  const std::size_t at = text.find("\n" + key + ":");
  if (at == std::string::npos) return text + line + "\n";
  const std::size_t end = text.find('\n', at + 1);
  return text.substr(0, at + 1) + line + text.substr(end);
}

std::string why_not(const std::string& text) {
  const Result<PlanFile> plan = parse_plan(text, "p.yaml");
  return plan ? "it is a plan" : plan.error().str();
}

PlanFile parsed_plan(const std::string& text) {
  const Result<PlanFile> out = parse_plan(text, "p.yaml");
  EXPECT_TRUE(out) << out.error().str();
  return out ? *out : PlanFile{};
}

TEST(PlanFile, SaysModelAndLayout) {
  const PlanFile file = parsed_plan(kPlanText);
  EXPECT_EQ(file.name, "small");
  EXPECT_EQ(file.calibration, "a100-cluster");
  EXPECT_EQ(file.model.layers, 16);
  EXPECT_EQ(file.model.kv_heads, 8);
  EXPECT_TRUE(file.model.fused_attention);
  EXPECT_TRUE(file.model.causal);
  EXPECT_TRUE(file.model.tied_embeddings);
  EXPECT_FALSE(file.model.gated);
  EXPECT_EQ(file.plan.data, 2);
  EXPECT_EQ(file.plan.ranks(), 64);
  EXPECT_EQ(file.plan.micro_batches(), 16);
  EXPECT_EQ(file.plan.chunks, 1);
  EXPECT_EQ(file.plan.sharding, Sharding::zero1);
  EXPECT_EQ(file.plan.recompute, Recompute::selective);
  EXPECT_EQ(file.gpu_memory->value, 80'000'000'000);
  EXPECT_FALSE(file.gpus_per_node);
}

TEST(PlanFile, WhatIsLeftOutHasItsDefault) {
  const std::string text =
      "plan: 1\nname: x\ncalibration: c\nsequence: 128\ngpus: 8\nglobal_batch: 8\n"
      "model: {layers: 8, hidden: 64, heads: 4, vocabulary: 100}\n";
  const PlanFile file = parsed_plan(text);
  EXPECT_EQ(file.model.kv_heads, 4);
  EXPECT_EQ(file.model.ffn, 256);
  EXPECT_EQ(file.plan.data, 8);
  EXPECT_EQ(file.plan.micro_batch, 1);
  EXPECT_EQ(file.plan.chunks, 1);
  EXPECT_EQ(file.plan.sharding, Sharding::none);
  EXPECT_EQ(file.plan.recompute, Recompute::none);
  EXPECT_FALSE(file.gpu_memory);
  for (const char* schedule : {"interleaved", "zbv"})
    EXPECT_EQ(parsed_plan(text + "pipeline: {stages: 4, schedule: " + schedule + "}\n").plan.chunks,
              2);
}

TEST(PlanFile, KnowsPublishedModels) {
  for (const std::string& name : published_model_names()) {
    const Transformer model = *published_model(name);
    const PlanFile file = parsed_plan(
        "plan: 1\nname: x\ncalibration: c\nsequence: 1024\ngpus: 8\n"
        "global_batch: 8\nmodel: " +
        name + "\n");
    EXPECT_EQ(file.model_name, name);
    EXPECT_EQ(parameters(file.model), parameters(model));
    // "llama3-70b", "gpt-1.7b": what the name says, in billions. Mixtral's experts share attention.
    double said = std::stod(name.substr(name.rfind('-') + 1));
    if (name == "mixtral-8x7b") said = 46.7;
    if (name == "mixtral-8x22b") said = 140.6;
    EXPECT_NEAR(static_cast<double>(parameters(model)) * 1e-9, said, 0.03 * said + 0.05) << name;
  }
  const std::string head =
      "plan: 1\nname: x\ncalibration: c\nsequence: 1024\ngpus: 8\nglobal_batch: 8\n";
  const PlanFile shorter = parsed_plan(head + "model: {name: llama3-8b, layers: 16}\n");
  EXPECT_EQ(shorter.model.layers, 16);
  EXPECT_EQ(shorter.model.ffn, 14336);
  EXPECT_THAT(why_not(head + "model: llama3-80b\n"),
              AllOf(HasSubstr("p.yaml:7:8"), HasSubstr("did you mean \"llama3-8b\"?"),
                    HasSubstr("gpt3-175b")));
  EXPECT_THAT(why_not(head + "model: {name: bert}\n"), HasSubstr("p.yaml:7:15"));
  EXPECT_THAT(why_not(head + "model: {layers: 2, heads: 4, vocabulary: 10}\n"),
              AllOf(HasSubstr("p.yaml:7:8"), HasSubstr("no \"hidden\"")));
}

struct Refused {
  const char* key;
  const char* line;
  const char* location;
  const char* why;
};

void PrintTo(const Refused& refused, std::ostream* out) { *out << '"' << refused.line << '"'; }

TEST(PlanFile, ReadsMixturesOfExperts) {
  const std::string head =
      "plan: 1\nname: x\ncalibration: c\nsequence: 1024\ngpus: 16\nglobal_batch: 16\n";
  const PlanFile file =
      parsed_plan(head + "model: {name: llama3-8b, experts: 16}\nexpert: 8\nexpert_skew: 1.5\n");
  EXPECT_EQ(file.model.experts, 16);
  EXPECT_EQ(file.model.experts_per_token, 2);
  EXPECT_EQ(file.plan.expert, 8);
  EXPECT_EQ(file.plan.expert_skew, 1.5);
  EXPECT_EQ(parsed_plan(head + "model: mixtral-8x7b\n").model.experts, 8);
  for (const auto& [rest, why] : std::initializer_list<std::pair<const char*, const char*>>{
           {"model: mixtral-8x7b\nexpert: 3\n",
            "p.yaml:8:9: error: experts 8 does not divide by expert 3"},
           {"model: mixtral-8x7b\ntensor: 4\nexpert: 8\n",
            "data-parallel ranks 4 does not divide by expert 8"},
           {"model: llama3-8b\nexpert: 2\n", "p.yaml:8:9: error: 2 ranks cannot share experts"},
           {"model: {name: llama3-8b, experts: 4, experts_per_token: 5}\n",
            "p.yaml:7:57: error: a token goes through 5 of 4 experts"},
           {"model: {name: llama3-8b, experts_per_token: 2}\n", "the model has no experts"},
           {"model: mixtral-8x7b\nexpert: 4\nexpert_skew: 5\n",
            "p.yaml:9:14: error: the fullest of 4 expert ranks cannot get 5 times the mean"},
           {"model: mixtral-8x7b\nexpert_skew: .nan\n", "p.yaml:8:14"},
           {"model: {layers: 16384, hidden: 1048576, heads: 4, vocabulary: 10, ffn: 1048576, "
            "experts: 4096}\n",
            "more than 10^18 parameters"}})
    EXPECT_THAT(why_not(head + rest), HasSubstr(why)) << rest;
}

class PlanRefuses : public ::testing::TestWithParam<Refused> {};

TEST_P(PlanRefuses, WithLocationAndReason) {
  const Refused& refused = GetParam();
  const std::string said = why_not(with(refused.key, refused.line));
  EXPECT_THAT(said, AllOf(HasSubstr(std::string("p.yaml:") + refused.location + ":"),
                          HasSubstr(refused.why), HasSubstr("fix: ")));
}

INSTANTIATE_TEST_SUITE_P(
    Keys, PlanRefuses,
    ::testing::Values(
        Refused{"tensors", "tensors: 4", "24:1", "did you mean \"tensor\"?"},
        Refused{"nodes", "nodes: 8", "24:1", "unknown key \"nodes\""},
        Refused{"gpus", "", "1:1", "the key \"gpus\" is missing"},
        Refused{"kernels", "kernels: pytorch", "24:10", "counted for gated layers"},
        Refused{"gpu_memory", "gpu_memory: 80", "13:13", "a quantity has its unit, like 80GB"},
        Refused{"gpu_memory", "gpu_memory: '80'", "13:13", "\"80\" has no unit"},
        Refused{"gpu_memory", "gpu_memory: 0GB", "13:13", "without memory"},
        Refused{"gpus", "gpus: 0", "12:7", "at least 1"},
        Refused{"gpus", "gpus: 1e9", "12:7", "whole number"},
        Refused{"gpus", "gpus: 99999999999999999999999999", "12:7", "should be"},
        Refused{"gpus", "gpus: -8", "12:7", "at least 1"},
        Refused{"gpus", "gpus: 1048577", "12:7", "at most 1048576"},
        Refused{"  heads", "  heads: 16\n  two_stream_layers: 17", "8:22",
                "17 of 16 layers cannot"},
        Refused{"zero", "zero: 4", "20:7", "at most 3"},
        Refused{"scatter", "scatter: layer", "24:10", "one of step and micro_batch"},
        Refused{"scatter", "scatter: micro_batch", "24:10", "only with zero: 2"},
        Refused{"recompute", "recompute: some", "23:12", "one of none, selective and full"}));

INSTANTIATE_TEST_SUITE_P(
    WhatDoesNotFitTogether, PlanRefuses,
    ::testing::Values(
        Refused{"gpus", "gpus: 60", "12:7",
                "60 GPUs do not divide by tensor x context x pipeline.stages = 4 x 2 x 4 = 32"},
        Refused{"gpus", "gpus: 16", "12:7", "use at least 32 GPUs"},
        Refused{"gpus_per_node", "gpus_per_node: 24", "12:7", "64 GPUs do not fill nodes of 24"},
        Refused{"tensor", "tensor: 16", "12:7", "do not divide"},
        Refused{"  heads", "  heads: 12", "7:10", "hidden 1024 does not divide by heads 12"},
        Refused{"  kv_heads", "  kv_heads: 3", "8:13", "heads 16 does not divide by kv_heads 3"},
        Refused{"  kv_heads", "  kv_heads: 2", "14:9", "kv_heads 2 does not divide by tensor"},
        Refused{"  ffn", "  ffn: 4097", "14:9", "ffn 4097 does not divide by tensor"},
        Refused{"  layers", "  layers: 3", "18:11", "4 stages for 3 layers"},
        Refused{"sequence", "sequence: 2047", "16:10", "sequence 2047 does not divide by context"},
        Refused{"sequence", "sequence: 2044", "14:9", "sequence / context 1022 does not divide by"},
        Refused{"global_batch", "global_batch: 2", "22:15", "less than one micro-batch"},
        Refused{"global_batch", "global_batch: 66", "22:15",
                "does not divide by micro_batch x data 4"},
        Refused{"  schedule", "  schedule: interleaved\n  chunks: 8", "18:11",
                "a piece would have"},
        Refused{"  schedule", "  schedule: zbv\n  chunks: 3", "20:11", "in 2 chunks, not 3"},
        Refused{"  schedule", "  schedule: gpipe\n  chunks: 2", "20:11", "gpipe has one piece"},
        Refused{"  schedule", "  schedule: 1f1b\n  split: balanced", "20:10",
                "one of even and short_ends"}));

TEST(PlanFile, SaysHowLayersAreSplit) {
  EXPECT_FALSE(parsed_plan(with("  schedule", "  schedule: 1f1b")).plan.short_ends);
  EXPECT_TRUE(
      parsed_plan(with("  schedule", "  schedule: 1f1b\n  split: short_ends")).plan.short_ends);
}

TEST(PlanFile, InterleavedTakesMicroBatchesInGroups) {
  std::string text = with("  schedule", "  schedule: interleaved");
  EXPECT_EQ(parsed_plan(text).plan.chunks, 2);
  text = std::regex_replace(text, std::regex("global_batch: 64"), "global_batch: 60");
  EXPECT_THAT(why_not(text), AllOf(HasSubstr("p.yaml:22:15"), HasSubstr("15 of each"),
                                   HasSubstr("not a multiple of 4")));
}

TEST(PlanFile, AStepThatIsTooLongIsRefusedBeforeItIsSimulated) {
  std::string text = with("global_batch", "global_batch: 1048576");
  text = std::regex_replace(text, std::regex("micro_batch: 2"), "micro_batch: 1");
  text = std::regex_replace(text, std::regex("layers: 16"), "layers: 16384");
  text = std::regex_replace(text, std::regex("stages: 4"), "stages: 8");
  EXPECT_THAT(why_not(text), AllOf(HasSubstr("p.yaml:22:15"), HasSubstr("too long")));
}

TEST(PlanFile, TheSchemaBoundsWhatTheModelTakes) {
  // Every number at its bound is one that workload_problem() takes or refuses with a reason.
  const std::string text = std::regex_replace(
      std::string(kPlanText), std::regex("(layers|hidden|heads|kv_heads|ffn|vocabulary): \\d+"),
      "$1: 16384");
  EXPECT_THAT(why_not(text), HasSubstr("it is a plan"));
}

// No prefix of a plan, and no plan with a byte changed, does anything but be read or be refused
// with a location in it.
TEST(PlanFile, DamageIsRefusedWithItsLocation) {
  const std::string whole = kPlanText;
  const auto look = [](const std::string& text) {
    const Result<PlanFile> read = parse_plan(text, "p.yaml");
    if (read) {
      EXPECT_GE(read->plan.ranks(), 1);
      return;
    }
    EXPECT_FALSE(read.error().message.empty());
    EXPECT_EQ(read.error().location.file, "p.yaml") << read.error().str();
  };
  for (std::size_t size = 0; size < whole.size(); ++size) look(whole.substr(0, size));
  for (std::size_t i = 0; i < whole.size(); ++i)
    for (const char byte : {'\0', '\n', ':', '9', '{', '\xff'}) {
      std::string damaged = whole;
      damaged[i] = byte;
      look(damaged);
    }
}

TEST(PlanFile, DeepNestingAndLongTextsAreRefused) {
  std::string deep;
  for (int i = 0; i < 5000; ++i) deep += "[";
  EXPECT_THAT(why_not(with("gpus", "gpus: " + deep)), HasSubstr("p.yaml"));
  deep.clear();
  for (int i = 0; i < 5000; ++i) deep += "{pipeline: ";
  EXPECT_THAT(why_not(with("pipeline", "x: " + deep)), HasSubstr("p.yaml"));
  EXPECT_THAT(why_not(with("name", "name: " + std::string(201, 'x'))), HasSubstr("200 characters"));
  EXPECT_THAT(why_not("plan: 1\nname: &a [x, x]\ncalibration: *a\n"), HasSubstr("p.yaml"));
}

TEST(PlanFile, IsDistinguishedFromScenarios) {
  EXPECT_TRUE(is_plan(kPlanText));
  EXPECT_FALSE(is_plan("lockstep: 1\nname: a job\n"));
  EXPECT_FALSE(is_plan("plan: [\n"));
  EXPECT_FALSE(is_plan(""));
}

TEST(PlanCost, NodesAreFilled) {
  PlanFile file = parsed_plan(kPlanText);
  CostParameters calibration;
  EXPECT_EQ(plan_cost(file, calibration)->ranks_per_node, 8);
  file.gpus_per_node = 4;
  EXPECT_EQ(plan_cost(file, calibration)->ranks_per_node, 4);
  file.gpus_per_node = std::nullopt;
  calibration.ranks_per_node = 12;
  EXPECT_THAT(plan_cost(file, calibration).error().str(),
              HasSubstr("p.yaml:12:7: error: 64 GPUs do not fill the nodes of 12"));
}

// An A100 would multiply 1.5 times as fast as it can, with an MFU above 100 %.
TEST(PlanCost, OnlyGpusFromHopperOnMultiplyIn8Bits) {
  PlanFile file = parsed_plan(std::string(kPlanText) + "dtype: float8\n");
  CostParameters machine;
  EXPECT_TRUE(plan_cost(file, machine));  // of no known generation
  machine.nccl = NcclTuning{};
  for (const auto& [gpu, can] : {std::pair{GpuGeneration::volta, false},
                                 {GpuGeneration::ampere, false},
                                 {GpuGeneration::hopper, true},
                                 {GpuGeneration::blackwell, true}}) {
    machine.nccl->gpu = gpu;
    EXPECT_EQ(static_cast<bool>(plan_cost(file, machine)), can);
  }
  machine.nccl->gpu = GpuGeneration::ampere;
  EXPECT_THAT(plan_cost(file, machine).error().str(),
              AllOf(HasSubstr("p.yaml:"), HasSubstr(":8: error: dtype: float8 on GPUs")));
  file.plan.fp8 = false;
  EXPECT_TRUE(plan_cost(file, machine));
}

}  // namespace
}  // namespace lockstep::sim
