// Kernels and steps: what must hold whatever the calibration says.
#include "sim/transformer/predict.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/transformer/small_transformer.h"

namespace lockstep::sim {
namespace {

CostParameters plain() {
  CostParameters cost;
  cost.gemm_half_depth = 1;
  cost.gemm_efficiency = 1;
  return cost;
}

// 108 processors: 108 tiles of 128 x 128 are one wave, 109 are two.
TEST(Gemm, RunsInWaves) {
  CostParameters cost = plain();
  cost.memory_bandwidth = 1e14;
  const double one = gemm_seconds(cost, {108 * 128.0, 128, 4096});
  EXPECT_NEAR(one, 2.0 * 108 * 128 * 128 * 4096 / 312e12, one * 1e-3);
  EXPECT_NEAR(gemm_seconds(cost, {109 * 128.0, 128, 4096}) / one, 2, 1e-9);
  EXPECT_NEAR(gemm_seconds(cost, {216 * 128.0, 128, 4096}) / one, 2, 1e-9);
}

// In waves of 108 tiles of 256 x 128, all of them busy.
double waves_of(const Gemm& gemm) {
  CostParameters cost = plain();
  cost.memory_bandwidth = 1e14;
  const double one = 108 * 2.0 * 256 * 128 * gemm.depth / 312e12;
  return gemm_seconds(cost, gemm) / one * gemm.depth / (gemm.depth + 1);
}

// 128 tiles are two waves; of 128 x 128 the 256 tiles would be three waves of half the time.
TEST(Gemm, HasTilesOfTwoSquares) {
  EXPECT_NEAR(waves_of({4096, 1024, 4096}), 2, 1e-9);
  EXPECT_NEAR(waves_of({256 * 108, 128, 4096}), 1, 1e-9);
  // Three rows of 36 lying tiles, or 36 columns of three standing ones.
  EXPECT_NEAR(waves_of({384, 256 * 36, 4096}), 1, 1e-9);
  EXPECT_NEAR(waves_of({256 * 36, 384, 4096}), 1, 1e-9);
  // 54 products of two tiles.
  EXPECT_NEAR(waves_of({256, 256, 4096, 54}), 1, 1e-9);
}

TEST(Gemm, TilesAtTheEdgeTakeAsLongAsWholeOnes) {
  EXPECT_NEAR(waves_of({256 * 108 - 100, 128, 4096}), 1, 1e-9);
  EXPECT_NEAR(waves_of({256 * 108, 65, 4096}), 1, 1e-9);
  // A narrower result has narrower tiles.
  EXPECT_NEAR(waves_of({256 * 108, 64, 4096}), 0.5, 1e-9);
}

TEST(Gemm, MoreRowsOrColumnsNeverTakeLess) {
  for (const double other : {40.0, 128.0, 1000.0, 12288.0}) {
    double rows_before = 0, columns_before = 0;
    for (double size = 16; size < 6000; size += 16) {
      const double rows = waves_of({size, other, 512}), columns = waves_of({other, size, 512});
      EXPECT_GE(rows, rows_before * (1 - 1e-12)) << size << " x " << other;
      EXPECT_GE(columns, columns_before * (1 - 1e-12)) << other << " x " << size;
      rows_before = rows;
      columns_before = columns;
    }
  }
}

TEST(Gemm, HalfOfTheEfficiencyIsLeftAtTheHalfDepth) {
  CostParameters cost = plain();
  cost.gemm_half_depth = 512;
  cost.memory_bandwidth = 1e14;
  const Gemm shallow{108 * 128.0, 128, 512};
  EXPECT_NEAR(gemm_seconds(cost, shallow), 2 * shallow.flops() / 312e12, 1e-12);
}

TEST(Gemm, TakesAtLeastTheTimeToMoveItsOperands) {
  CostParameters cost = plain();
  cost.memory_bandwidth = 1e9;
  EXPECT_DOUBLE_EQ(gemm_seconds(cost, {128, 128, 128}), 2.0 * 3 * 128 * 128 / 1e9);
}

// The ends of a tile take as long: of a shallow product less is won.
TEST(Gemm, In8BitsOnlyMultiplyingIsFaster) {
  CostParameters cost = plain();
  cost.gemm_half_depth = 512;
  cost.memory_bandwidth = 1e14;
  cost.fp8_gain = 1.6;
  const auto gain = [&](double depth) {
    const Gemm gemm{108 * 128.0, 128, depth};
    return gemm_seconds(cost, gemm) / gemm_seconds(cost, gemm, true);
  };
  EXPECT_NEAR(gain(512), 2 / (1 / 1.6 + 1), 1e-9);
  EXPECT_NEAR(gain(1e6), 1.6, 1e-3);
}

TEST(Groups, AreWithinANodeOrBringANetworkCardEach) {
  const CostParameters cost;  // 8 ranks a node
  EXPECT_EQ(group_of(cost, 8, 1).per_node, 8);
  EXPECT_EQ(group_of(cost, 4, 2).per_node, 4);
  EXPECT_EQ(group_of(cost, 32, 2).per_node, 4);
  EXPECT_EQ(group_of(cost, 32, 8).per_node, 1);
  const double bytes = 1e9;
  // A ring inside a node: 2 (n-1) hops, 2 (n-1)/n of the bytes over its links.
  EXPECT_NEAR(collective_seconds(cost, trace::Op::all_reduce, bytes, {8, 8}),
              3 * cost.call_overhead + 14 * 2e-6 + 1.75 * bytes / 230e9, 1e-9);
  // Over nodes the latency of a tree up and down, and one network card's share.
  EXPECT_NEAR(collective_seconds(cost, trace::Op::all_reduce, bytes, {32, 1}),
              5 * cost.call_overhead + 2 * 5 * 4e-6 + 2 * 31.0 / 32 * bytes / 12e9, 1e-9);
  // Five ranks, of which two could share a node, are priced as one on each.
  EXPECT_EQ(collective_seconds(cost, trace::Op::all_reduce, bytes, {5, 2}),
            collective_seconds(cost, trace::Op::all_reduce, bytes, {5, 1}));
  EXPECT_EQ(collective_seconds(cost, trace::Op::all_reduce, bytes, {1, 1}), 0);
}

TrainingPlan predicted_plan() {
  TrainingPlan out;
  out.sequence = 1024;
  out.global_batch = 32;
  out.micro_batch = 2;
  return out;
}

double seconds(const TrainingPlan& of, const CostParameters& cost = {}) {
  const Result<StepPrediction> step = predict_step(small_transformer(), of, cost);
  EXPECT_TRUE(step) << step.error().str();
  return step->seconds;
}

// What the backward pass repeats costs time: full the whole forward, selective the attention alone
// or, in gated layers, a part of the products. So a sweep does not take selective for free.
TEST(Layer, RecomputationTakesTime) {
  const CostParameters cost;
  for (const bool gated : {false, true}) {
    Transformer model = small_transformer();
    model.gated = gated;
    TrainingPlan of = predicted_plan();
    EXPECT_EQ(layer_times(model, of, cost).recompute.on_gpu(), 0);
    of.recompute = Recompute::full;
    const LayerTimes full = layer_times(model, of, cost);
    EXPECT_EQ(full.recompute.on_gpu(), full.forward.on_gpu());
    of.recompute = Recompute::selective;
    const LayerTimes selective = layer_times(model, of, cost);
    EXPECT_GT(selective.recompute.on_gpu(), 0);
    EXPECT_LT(selective.recompute.on_gpu(), 0.8 * full.forward.on_gpu());
    if (!gated) {
      EXPECT_EQ(selective.recompute.kernels, selective.forward.attention);
    }
  }
  TrainingPlan of = predicted_plan();
  const double none = seconds(of);
  of.recompute = Recompute::selective;
  const double selective = seconds(of);
  of.recompute = Recompute::full;
  EXPECT_LT(none, selective);
  EXPECT_LT(selective, seconds(of));
}

// Casting takes as long as the operands are wide, multiplying grows with the square. Attention
// stays in 16 bits.
TEST(Layer, GainsMoreFrom8BitsTheWiderItIs) {
  const CostParameters cost;
  TrainingPlan of = predicted_plan();
  const auto gain = [&](std::int64_t hidden) {
    Transformer model = small_transformer();
    model.hidden = hidden;
    model.ffn = 4 * hidden;
    of.fp8 = false;
    const LayerTimes in_16 = layer_times(model, of, cost);
    of.fp8 = true;
    const LayerTimes in_8 = layer_times(model, of, cost);
    EXPECT_EQ(in_8.forward.attention, in_16.forward.attention);
    return (in_16.forward.kernels + in_16.backward.kernels) /
           (in_8.forward.kernels + in_8.backward.kernels);
  };
  EXPECT_GT(gain(8192), 1.05 * gain(2048));
  EXPECT_LT(gain(8192), cost.fp8_gain);
}

// Only sequence parallelism makes the all-gather, one half of an all-reduce, a call of its own.
TEST(Layer, Gathers8BitOperandsIn8Bits) {
  TrainingPlan of = predicted_plan();
  of.tensor = 2;
  const auto calls = [&](bool fp8, bool split) {
    of.fp8 = fp8;
    of.sequence_parallel = split;
    return layer_times(small_transformer(), of, {}).forward.tensor;
  };
  EXPECT_EQ(calls(true, false), calls(false, false));
  EXPECT_LT(calls(true, true), calls(false, true));
  EXPECT_GT(calls(true, true), 0.75 * calls(false, true));
}

TEST(Layer, TheFusedSoftmaxNeedsAMultipleOfFour) {
  TrainingPlan of = predicted_plan();
  of.tensor = 8;  // 2 heads x 2 sequences
  const LayerTimes fused = layer_times(small_transformer(), of, {});
  of.micro_batch = 1;
  const LayerTimes unfused = layer_times(small_transformer(), of, {});
  EXPECT_GT(unfused.forward.launches, fused.forward.launches);
}

// An operator at a time, in bytes per token and element of the width: 84 for the norms and
// additions, 40 for the rotary embeddings and 40 for a feed-forward block of 4 times the width;
// fused by hand 28 and 30 x 1.5. A compiler leaves the same of both.
TEST(Layer, PyTorchsOwnOperatorsReadAndWriteMore) {
  const CostParameters cost;
  Transformer model = small_transformer();
  model.gated = true;
  TrainingPlan of = predicted_plan();
  const auto bytes = [&](const LayerTime& time) {
    return time.kernels * cost.memory_bandwidth /
           static_cast<double>(of.tokens() * small_transformer().hidden);
  };
  const LayerTimes fused = layer_times(model, of, cost);
  of.plain_kernels = true;
  const LayerTimes plain = layer_times(model, of, cost);
  EXPECT_NEAR(bytes(plain.forward) - bytes(fused.forward), 84 + 40 + 40 - (28 + 30 * 1.5), 1e-6);
  EXPECT_NEAR(bytes(plain.backward) - bytes(fused.backward), 198 + 40 + 72 - (34 + 38 * 1.5), 1e-6);
  of.compiled = true;
  const LayerTimes compiled = layer_times(model, of, cost);
  of.plain_kernels = false;
  EXPECT_EQ(compiled.forward.kernels, layer_times(model, of, cost).forward.kernels);
}

// PyTorch's context parallelism gathers a copy of the keys for each head, sends gradients round,
// and merges results beside attention. Compiled, its calls are waited for.
TEST(Layer, PyTorchsContextParallelismMovesMore) {
  const CostParameters cost;
  Transformer model = small_transformer();
  model.gated = model.fused_attention = true;
  model.kv_heads = model.heads / 4;
  TrainingPlan of = predicted_plan();
  of.sequence = 32768;
  of.context = 4;
  of.compiled = true;
  const LayerTimes fused = layer_times(model, of, cost);
  of.plain_kernels = true;
  const LayerTimes plain = layer_times(model, of, cost);
  EXPECT_GT(plain.forward.context, 2 * fused.forward.context);
  EXPECT_GT(plain.backward.context, plain.forward.context);
  EXPECT_GT(plain.forward.kernels, fused.forward.kernels);
  EXPECT_GT(plain.backward.kernels, fused.backward.kernels);
  of.compiled = false;
  EXPECT_LT(layer_times(model, of, cost).forward.context, plain.forward.context);
}

// Images and texts have products of half of the rows each. Where these fill the same waves of tiles
// only the launches are more; 2,048 rows fill the waves of 4,096 worse.
TEST(Layer, OfTwoStreamsHasTwiceTheProductsOfHalfTheRows) {
  TrainingPlan of = predicted_plan();
  of.sequence = 4096;
  of.micro_batch = 1;
  of.tensor = 4;
  Transformer one = small_transformer();
  one.hidden = 3072;
  one.ffn = 4 * one.hidden;
  one.heads = one.kv_heads = 24;
  one.fused_attention = true;
  Transformer two = one;
  two.two_stream_layers = two.layers;
  CostParameters cost;
  cost.processors = 148;
  const LayerTimes of_one = layer_times(one, of, cost), of_two = layer_times(two, of, cost);
  EXPECT_GT(of_two.forward.kernels, 1.05 * of_one.forward.kernels);
  EXPECT_GT(of_two.backward.weights, of_one.backward.weights);
  EXPECT_DOUBLE_EQ(of_two.forward.launches, of_one.forward.launches * (1 + 12.0 / 17));
  EXPECT_EQ(of_two.forward.attention, of_one.forward.attention);
  EXPECT_EQ(of_two.forward.tensor, of_one.forward.tensor);
  cost.processors = 1;
  EXPECT_NEAR(layer_times(two, of, cost).forward.kernels,
              layer_times(one, of, cost).forward.kernels, 1e-12);
  // Of half of the layers.
  cost.processors = 148;
  two.two_stream_layers = two.layers / 2;
  EXPECT_NEAR(layer_times(two, of, cost).forward.kernels,
              (of_one.forward.kernels + of_two.forward.kernels) / 2, 1e-12);
}

TEST(Layer, RecomputeLeavesTheLayersOwnTimesAlone) {
  TrainingPlan of = predicted_plan();
  const LayerTimes once = layer_times(small_transformer(), of, {});
  of.recompute = Recompute::full;
  EXPECT_EQ(layer_times(small_transformer(), of, {}).backward.kernels, once.backward.kernels);
  EXPECT_GT(seconds(of), seconds(predicted_plan()));
}

// arXiv 2401.10241, table 1: of a layer, the products for the input's gradients with attention are
// 24 h + 8 s operations a token and element of the width, those for the weights' gradients 24 h.
TEST(Layer, WhatMayWaitOfABackwardPassAreTheWeightsProducts) {
  Transformer model = small_transformer();
  TrainingPlan of = predicted_plan();
  of.sequence = 4096;
  CostParameters cost;
  cost.processors = 1;
  cost.gemm_half_depth = 0;
  cost.memory_bandwidth = 1e18;
  cost.launch_forward = cost.launch_backward = cost.launch_unfused = cost.launch_micro_batch = 0;
  const auto share = [&] {
    const PieceTime piece = piece_time(of, cost, layer_times(model, of, cost), {}, 1);
    return piece.weight / piece.backward;
  };
  const double width = 24 * 2048, attention = 8 * 4096;
  EXPECT_NEAR(share(), width / (2 * width + attention), 1e-3);
  // Tensor ranks wait for their collectives, so these are not put off; nor is what is recomputed.
  const double alone = share();
  of.tensor = 2;
  EXPECT_LT(share(), 0.95 * alone);
  of.tensor = 1;
  of.recompute = Recompute::full;
  EXPECT_LT(share(), 0.75 * alone);
}

TEST(Step, IsThePipelinesPlusTheExchangesPlusTheUpdates) {
  TrainingPlan of = predicted_plan();
  of.data = 4;
  const StepPrediction step = *predict_step(small_transformer(), of, {});
  EXPECT_DOUBLE_EQ(step.seconds,
                   step.pipeline_seconds + step.exchange_seconds + step.update_seconds);
  EXPECT_GT(step.exchange_seconds, 0);
  EXPECT_EQ(step.parts.bubble, 0);
}

TEST(Step, APipelinesBubbleFollowsItsSchedule) {
  TrainingPlan of = predicted_plan();
  of.pipeline = 4;
  of.global_batch = 16;  // 8 micro-batches
  const StepPrediction alternate = *predict_step(small_transformer(), of, {});
  EXPECT_GT(alternate.parts.bubble / alternate.pipeline_seconds,
            0.2);  // (p-1)/(m+p-1) = 0.27, more for uneven stages
  of.schedule = PipelineSchedule::interleaved;
  of.chunks = 2;
  const StepPrediction interleaved = *predict_step(small_transformer(), of, {});
  EXPECT_LT(interleaved.parts.bubble, alternate.parts.bubble);
  EXPECT_LT(interleaved.seconds, alternate.seconds);
  of.schedule = PipelineSchedule::zb_h2;
  of.chunks = 1;
  EXPECT_LT(predict_step(small_transformer(), of, {})->seconds, alternate.seconds);
}

// Whole activations are summed in the forward; split ones are scattered there, and gathered in the
// backward.
TEST(Step, TheEmbeddingIsSummedOverTensorRanksOnce) {
  TrainingPlan of = predicted_plan();
  of.tensor = 2;
  const PieceTime whole = embedding_time(small_transformer(), of, {});
  EXPECT_NEAR(whole.forward - whole.backward, whole.parts.tensor, 1e-12);
  of.sequence_parallel = true;
  const PieceTime split = embedding_time(small_transformer(), of, {});
  EXPECT_NEAR(split.forward, split.backward, 1e-12);
  EXPECT_EQ(split.parts.tensor, whole.parts.tensor);
}

// The logits take about as long as a layer: with a layer less the last stage keeps nobody waiting.
TEST(Step, ShortEndsEvenThePipelineOut) {
  TrainingPlan of = predicted_plan();
  of.pipeline = 4;
  of.global_batch = 128;
  Transformer model = small_transformer();
  model.layers = 14;
  model.vocabulary = 60000;
  for (const bool chunks : {false, true}) {
    of.schedule = chunks ? PipelineSchedule::interleaved : PipelineSchedule::one_f_one_b;
    of.chunks = chunks ? 2 : 1;
    of.short_ends = false;
    const StepPrediction even = *predict_step(model, of, {});
    of.short_ends = true;
    const StepPrediction split = *predict_step(model, of, {});
    EXPECT_LT(split.seconds, 0.97 * even.seconds);
    // The same layers, elsewhere.
    EXPECT_NEAR(split.parts.layers, even.parts.layers, 1e-9 * even.parts.layers);
  }
  of.pipeline = of.chunks = 1;
  of.schedule = PipelineSchedule::one_f_one_b;
  const StepPrediction whole = *predict_step(model, of, {});
  of.short_ends = false;
  EXPECT_EQ(predict_step(model, of, {})->seconds, whole.seconds);
}

Transformer mixture(std::int64_t experts, std::int64_t per_token) {
  Transformer out = small_transformer();
  out.experts = experts;
  out.experts_per_token = per_token;
  return out;
}

// One expert for all tokens is the dense layer, with a router and tokens that are sorted.
TEST(Experts, OneOfThemIsTheDenseLayer) {
  const LayerTimes dense = layer_times(small_transformer(), predicted_plan(), {});
  const LayerTimes one = layer_times(mixture(1, 1), predicted_plan(), {});
  EXPECT_GT(one.forward.kernels, dense.forward.kernels);
  EXPECT_LT(one.forward.kernels, 1.1 * dense.forward.kernels);
  EXPECT_EQ(one.forward.expert, 0);
}

// Two all-to-alls each way, of the tokens that go through two experts.
TEST(Experts, TokensGoToTheirRanksAndBack) {
  CostParameters cost;
  cost.call_overhead = 0;
  TrainingPlan of = predicted_plan();
  of.data = of.expert = 8;
  const LayerTimes even = layer_times(mixture(16, 2), of, cost);
  const double bytes =
      2.0 * 2 * static_cast<double>(of.tokens()) * static_cast<double>(small_transformer().hidden);
  EXPECT_DOUBLE_EQ(even.forward.expert,
                   2 * collective_seconds(cost, trace::Op::all_to_all, bytes, {8, 8}));
  EXPECT_EQ(even.backward.expert, even.forward.expert);
  // The fullest rank has twice the tokens: all wait for it.
  of.expert_skew = 2;
  const LayerTimes skewed = layer_times(mixture(16, 2), of, cost);
  EXPECT_DOUBLE_EQ(skewed.forward.expert, 2 * even.forward.expert);
  EXPECT_GT(skewed.forward.kernels, even.forward.kernels);
  EXPECT_GT(predict_step(mixture(16, 2), of, cost)->parts.expert, 0);
  // Over nodes it takes longer than within one.
  of.expert_skew = 1;
  of.tensor = 2;
  EXPECT_GT(layer_times(mixture(16, 2), of, cost).forward.expert, even.forward.expert);
}

// Experts are summed over the ranks that hold the same ones: four of 16.
TEST(Experts, HaveAnExchangeOfTheirOwn) {
  TrainingPlan of = predicted_plan();
  of.data = 16;
  of.expert = 4;
  const CostParameters cost;
  const std::vector<PlannedExchange> planned =
      planned_exchanges(of, cost, {.dense = 1e6, .experts = 2e6}, 8, true);
  ASSERT_EQ(planned.size(), 2);
  EXPECT_EQ(planned[0].calls.group.ranks, 4);
  EXPECT_EQ(planned[0].calls.group.stride, 4);
  EXPECT_EQ(planned[1].calls.group.ranks, 16);
  EXPECT_EQ(planned[0].calls.reduce.bytes, 2 * planned[1].calls.reduce.bytes);
  const StepPrediction step = *predict_step(mixture(8, 2), of, cost);
  of.expert = 1;
  EXPECT_LT(step.memory.state.total(), predict_step(mixture(8, 2), of, cost)->memory.state.total());
}

// Scattered in each of four micro-batches, gradients cross the network four times: once a step and
// without overlap, an all-reduce is as long as one scatter and the gathering.
TEST(Step, Zero2MayScatterInEachMicroBatch) {
  TrainingPlan of = predicted_plan();
  of.data = 8;
  of.global_batch = 4 * of.micro_batch * of.data;
  of.sharding = Sharding::zero2;
  of.short_gradients = true;
  const CostParameters cost;
  const StepPrediction once = *predict_step(small_transformer(), of, cost);
  TrainingPlan each = of;
  each.scatters_each_micro_batch = true;
  const StepPrediction scattered = *predict_step(small_transformer(), each, cost);
  const RankParameters count = parameters_of_rank(small_transformer(), of);
  const double scatter = collective_seconds(cost, trace::Op::reduce_scatter, 2 * count.total(),
                                            group_of(cost, 8, of.tensor, of.ranks()));
  // The gathering is a call of its own.
  const double launch = cost.call_overhead * std::log2(8);
  EXPECT_NEAR(scattered.seconds - once.seconds, 3 * scatter + launch, 1e-9);
  EXPECT_NEAR(scattered.parts.total(), scattered.seconds, 1e-9);
  EXPECT_EQ(scattered.memory_bytes, once.memory_bytes);
  // Hidden, it costs less, and more than what is exchanged once.
  of.overlapped_gradients = each.overlapped_gradients = true;
  const StepPrediction hidden = *predict_step(small_transformer(), each, cost);
  EXPECT_LT(hidden.seconds, scattered.seconds);
  EXPECT_GT(hidden.seconds, predict_step(small_transformer(), of, cost)->seconds);
  // A single micro-batch is scattered once in any case.
  of.global_batch = each.global_batch = of.micro_batch * of.data;
  EXPECT_EQ(predict_step(small_transformer(), each, cost)->seconds,
            predict_step(small_transformer(), of, cost)->seconds);
}

TEST(Step, Zero3HidesItsExchangeBesideTheLayers) {
  TrainingPlan of = predicted_plan();
  of.data = 8;
  of.sharding = Sharding::zero3;
  const StepPrediction sharded = *predict_step(small_transformer(), of, {});
  EXPECT_EQ(sharded.exchange_seconds, 0);
  of.sharding = Sharding::none;
  const StepPrediction whole = *predict_step(small_transformer(), of, {});
  EXPECT_LT(sharded.memory.state.total(), whole.memory.state.total() / 7);
  EXPECT_GT(sharded.memory.held.unsharded, 0);
}

}  // namespace
}  // namespace lockstep::sim
