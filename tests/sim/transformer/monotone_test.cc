// What-ifs that must not be the wrong way round, on plans drawn at random: a slower part of the
// machine never makes a step faster or needs other memory, more work never takes less of either.
#include <array>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "sim/transformer/predict.h"
#include "tests/sim/transformer/small_transformer.h"

namespace lockstep::sim {
namespace {

struct Drawn {
  Transformer model;
  TrainingPlan plan;
};

// A plan on 64 to 512 GPUs that can be.
Drawn drawn_plan(std::mt19937& random) {
  const auto one_of = [&random](auto... choices) {
    const std::array all = {choices...};
    return all[std::uniform_int_distribution<std::size_t>(0, all.size() - 1)(random)];
  };
  Drawn out{small_transformer(), {}};
  out.model.layers = one_of(16, 24);
  out.model.gated = out.model.fused_attention = one_of(true, false);
  TrainingPlan& plan = out.plan;
  plan.tensor = one_of(1, 2, 8);
  plan.context = one_of(1, 2);
  plan.data = one_of(8, 16);
  plan.pipeline = one_of(1, 2, 4);
  plan.sequence = 1024;
  plan.micro_batch = one_of(1, 2);
  plan.global_batch = plan.data * plan.micro_batch * one_of(8, 16);
  if (plan.pipeline > 1)
    plan.schedule = one_of(PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b,
                           PipelineSchedule::interleaved, PipelineSchedule::zb_h1,
                           PipelineSchedule::zb_h2, PipelineSchedule::zbv);
  if (plan.schedule == PipelineSchedule::interleaved || plan.schedule == PipelineSchedule::zbv)
    plan.chunks = 2;
  plan.sharding = one_of(Sharding::none, Sharding::zero1, Sharding::zero2, Sharding::zero3);
  plan.recompute = one_of(Recompute::none, Recompute::selective, Recompute::full);
  plan.sequence_parallel = plan.tensor > 1 && one_of(true, false);
  plan.overlapped_tensor = plan.tensor > 1 && one_of(true, false);
  plan.overlapped_gradients = one_of(true, false);
  plan.overlapped_context = one_of(true, false);
  plan.overlapped_pipeline = one_of(true, false);
  plan.fp8 = one_of(true, false);
  plan.compiled = one_of(true, false);
  plan.plain_kernels = one_of(true, false);
  return out;
}

std::string text_of(const TrainingPlan& p) {
  return "t " + std::to_string(p.tensor) + " c " + std::to_string(p.context) + " d " +
         std::to_string(p.data) + " p " + std::to_string(p.pipeline) + " " +
         std::string(pipeline_schedule_name(p.schedule)) + " zero " +
         std::to_string(static_cast<int>(p.sharding)) + " recompute " +
         std::string(kRecomputeNames[static_cast<std::size_t>(p.recompute)]);
}

// Where host and GPU are about as slow, their time is dealt to the passes by both, and so moves a
// little from one to the other, where it delays other stages less.
constexpr double kMoved = 1 + 1e-3;
constexpr double kRounding = 1 + 1e-9;

TEST(Monotone, SlowerPartsNeverMakeAStepFaster) {
  std::mt19937 random(20);
  for (int i = 0; i < 60; ++i) {
    const Drawn drawn = drawn_plan(random);
    const Result<StepPrediction> before = predict_step(drawn.model, drawn.plan, {});
    ASSERT_TRUE(before) << before.error().str() << text_of(drawn.plan);
    for (const CostParameter& parameter : cost_parameters()) {
      const std::string name(parameter.name);
      if (name == "processors") continue;  // other waves of tiles
      CostParameters cost;
      const bool rate = name == "memory_bandwidth" || name == "node_speed" ||
                        name == "network_speed" || name == "gemm_efficiency" ||
                        name == "attention_efficiency" || name == "fp8_gain";
      cost.*(parameter.value) *= rate ? 0.4 : 2.5;
      const Result<StepPrediction> slower = predict_step(drawn.model, drawn.plan, cost);
      ASSERT_TRUE(slower) << slower.error().str();
      EXPECT_LE(before->seconds, slower->seconds * kMoved) << name << ", " << text_of(drawn.plan);
      if (name == "reserved_memory")
        EXPECT_LT(before->memory_bytes, slower->memory_bytes);
      else
        EXPECT_EQ(before->memory_bytes, slower->memory_bytes) << name << text_of(drawn.plan);
    }
  }
}

// Where the host limits the step, what is left of each pass is the host's part of it; dealt by the
// GPU's, a quicker GPU moved time to the passes on which others wait, and steps took up to 1.7 %
// longer.
TEST(Monotone, AQuickerGpuBehindASlowHostMakesNoStepLonger) {
  std::mt19937 random(24);
  int split = 0;
  for (int i = 0; i < 400; ++i) {
    Drawn drawn = drawn_plan(random);
    if (!splits_backward(drawn.plan.schedule)) continue;
    ++split;
    drawn.model.hidden = 1024;
    drawn.model.ffn = 4096;
    CostParameters cost;
    const Result<StepPrediction> before = predict_step(drawn.model, drawn.plan, cost);
    cost.peak_flops *= 2;
    const Result<StepPrediction> after = predict_step(drawn.model, drawn.plan, cost);
    ASSERT_TRUE(before && after) << text_of(drawn.plan);
    EXPECT_LE(after->seconds, before->seconds * (1 + 5e-3)) << text_of(drawn.plan);
  }
  EXPECT_GT(split, 80);
}

TEST(Monotone, MoreWorkNeverTakesLess) {
  std::mt19937 random(21);
  for (int i = 0; i < 150; ++i) {
    const Drawn drawn = drawn_plan(random);
    const Result<StepPrediction> before = predict_step(drawn.model, drawn.plan, {});
    ASSERT_TRUE(before) << before.error().str() << text_of(drawn.plan);
    Drawn layers = drawn, wider = drawn, words = drawn, longer = drawn, batch = drawn;
    layers.model.layers += layers.plan.pieces();
    wider.model.ffn *= 2;
    words.model.vocabulary *= 2;
    longer.plan.sequence *= 2;
    batch.plan.global_batch *= 2;
    for (const auto& [more, what] : {std::pair(layers, "layers"),
                                     {wider, "a wider block"},
                                     {words, "words"},
                                     {longer, "tokens"},
                                     {batch, "samples"}}) {
      const Result<StepPrediction> after = predict_step(more.model, more.plan, {});
      ASSERT_TRUE(after) << after.error().str();
      EXPECT_LE(before->seconds, after->seconds * kMoved)
          << "more " << what << ", " << text_of(drawn.plan);
      EXPECT_LE(before->memory_bytes, after->memory_bytes * kRounding)
          << "more " << what << ", " << text_of(drawn.plan);
    }
  }
}

// What recomputes more keeps less and takes longer; what is sharded further keeps less.
TEST(Monotone, MemoryIsBoughtWithTime) {
  std::mt19937 random(22);
  for (int i = 0; i < 150; ++i) {
    Drawn drawn = drawn_plan(random);
    std::vector<StepPrediction> by_recompute;
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      drawn.plan.recompute = recompute;
      by_recompute.push_back(*predict_step(drawn.model, drawn.plan, {}));
    }
    for (std::size_t more = 1; more < by_recompute.size(); ++more) {
      EXPECT_LE(by_recompute[more].memory_bytes, by_recompute[more - 1].memory_bytes * kRounding)
          << text_of(drawn.plan);
      EXPECT_GE(by_recompute[more].seconds, by_recompute[more - 1].seconds) << text_of(drawn.plan);
    }
    double before = 1e18;
    for (const Sharding sharding : {Sharding::none, Sharding::zero1, Sharding::zero2}) {
      drawn.plan.sharding = sharding;
      const double bytes = predict_step(drawn.model, drawn.plan, {})->memory_bytes;
      EXPECT_LE(bytes, before) << text_of(drawn.plan);
      before = bytes;
    }
  }
}

}  // namespace
}  // namespace lockstep::sim
