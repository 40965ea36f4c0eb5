// One layer, kernel by kernel.

#include "sim/transformer/layer_times.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "sim/collectives/collective.h"
#include "sim/transformer/predict.h"

namespace lockstep::sim {
namespace {

// The element-wise bytes per token and element of the width: read and write of 16-bit values, norms
// and residual additions on every rank, activation functions and reshapes cut over the tensor
// ranks.
struct Traffic {
  double whole, cut;
};
constexpr Traffic kForward{28, 30};
constexpr Traffic kBackward{34, 38};
// Bytes per score: write, softmax (read, write), dropout (read, write, mask), read; backward the
// like. Without the fused kernel scaling, masking and softmax read and write once more each.
constexpr double kScoreForward = 13, kScoreBackward = 15, kUnfused = 12;

struct Sizes {
  double tokens, hidden, kv, ffn, tensor;
};

Sizes sizes_of(const Transformer& model, const TrainingPlan& plan) {
  const auto h = static_cast<double>(model.hidden);
  return {static_cast<double>(plan.tokens()), h,
          h * static_cast<double>(model.kv_heads) / static_cast<double>(model.heads),
          static_cast<double>(model.ffn), static_cast<double>(plan.tensor)};
}

std::vector<Gemm> linear(const Transformer& model, const Sizes& s) {
  std::vector<Gemm> out = {
      {s.tokens, (s.hidden + 2 * s.kv) / s.tensor, s.hidden},
      {s.tokens, s.hidden, s.hidden / s.tensor},
      {s.tokens, s.ffn * (model.gated ? 2 : 1) / s.tensor, s.hidden},
      {s.tokens, s.hidden, s.ffn / s.tensor},
  };
  return out;
}

double forward_seconds(const CostParameters& cost, const std::vector<Gemm>& gemms, double speed) {
  double seconds = 0;
  for (const Gemm& gemm : gemms) seconds += gemm_seconds(cost, gemm, speed);
  return seconds;
}

// Gradients of the input and of the weights.
double backward_seconds(const CostParameters& cost, const std::vector<Gemm>& gemms, double speed) {
  double seconds = 0;
  for (const Gemm& g : gemms)
    seconds += gemm_seconds(cost, {g.rows, g.depth, g.columns, g.batch}, speed) +
               gemm_seconds(cost, {g.depth, g.columns, g.rows, g.batch}, speed);
  return seconds;
}

struct Attention {
  double forward, backward;
};

Attention attention(const Transformer& model, const TrainingPlan& plan,
                    const CostParameters& cost) {
  const double rows = static_cast<double>(plan.sequence) / plan.context;
  const auto columns = static_cast<double>(plan.sequence);
  const auto width = static_cast<double>(model.head_width());
  const double batch =
      static_cast<double>(plan.micro_batch) * static_cast<double>(model.heads) / plan.tensor;
  const Gemm scores{rows, columns, width, batch};
  const Gemm values{rows, width, columns, batch};
  if (model.fused_attention) {
    // One kernel that keeps its tiles on chip: 2 products forward, 5 backward (arXiv 2307.08691,
    // section 3.1), at the efficiency of a product as deep as its tiles.
    const double share = model.causal ? 0.5 : 1;
    const Gemm tile{rows, columns, 128, batch * width / 128};
    const double one = share * gemm_seconds(cost, tile);
    return {2 * one, 5 * one};
  }
  const double count = rows * columns * batch;
  const bool fused = plan.micro_batch * (model.heads / plan.tensor) % 4 == 0;
  const double more = fused ? 0 : kUnfused;
  const std::vector<Gemm> both = {scores, values};
  return {forward_seconds(cost, both, 1) +
              traffic_seconds(cost, cost.attention_traffic * count * (kScoreForward + more)),
          backward_seconds(cost, both, 1) +
              traffic_seconds(cost, cost.attention_traffic * count * (kScoreBackward + more))};
}

// One way: the activations over the tensor ranks.
double tensor_seconds(const TrainingPlan& plan, const CostParameters& cost, const Sizes& s) {
  const Group tensor = group_of(cost, plan.tensor, 1);
  const double seconds =
      2 * collective_seconds(cost, trace::Op::all_reduce, 2 * s.tokens * s.hidden, tensor);
  return plan.overlapped_tensor ? seconds * cost.overlap_slowdown : seconds;
}

// One way: keys and values over the context ranks.
double context_seconds(const TrainingPlan& plan, const CostParameters& cost, const Sizes& s) {
  if (plan.context == 1) return 0;
  const double bytes = 2 * 2 * s.tokens * plan.context * s.kv / s.tensor;
  return collective_seconds(cost, trace::Op::all_gather, bytes,
                            group_of(cost, plan.context, plan.tensor));
}

}  // namespace

LayerTimes layer_times(const Transformer& model, const TrainingPlan& plan,
                       const CostParameters& cost) {
  const Sizes s = sizes_of(model, plan);
  const std::vector<Gemm> gemms = linear(model, s);
  const double speed = plan.fp8 ? cost.fp8_gain : 1;
  const Attention attends = attention(model, plan, cost);
  const double left = plan.compiled ? cost.compiled_traffic : 1;
  const double whole_ranks = plan.sequence_parallel ? s.tensor : 1;
  const double wide = s.ffn / (4 * s.hidden) * (model.gated ? 1.5 : 1);
  const auto element_wise = [&](const Traffic& bytes) {
    return traffic_seconds(cost, left * s.tokens * s.hidden *
                                     (bytes.whole / whole_ranks + bytes.cut * wide / s.tensor));
  };
  const bool fused =
      model.fused_attention || plan.micro_batch * (model.heads / plan.tensor) % 4 == 0;
  LayerTimes times;
  times.forward.kernels =
      forward_seconds(cost, gemms, speed) + attends.forward + element_wise(kForward);
  times.backward.kernels =
      backward_seconds(cost, gemms, speed) + attends.backward + element_wise(kBackward);
  times.forward.tensor = times.backward.tensor = tensor_seconds(plan, cost, s);
  times.forward.context = times.backward.context = context_seconds(plan, cost, s);
  times.forward.launches = cost.launch_forward + (fused ? 0 : cost.launch_unfused);
  times.backward.launches = cost.launch_backward;
  return times;
}

double gemm_seconds(const CostParameters& cost, const Gemm& gemm, double speed) {
  constexpr double kTile = 128;
  const double tiles =
      std::ceil(gemm.rows / kTile) * std::ceil(gemm.columns / kTile) * std::max(gemm.batch, 1.0);
  const double waves = std::ceil(tiles / cost.processors);
  const double filled = tiles / (waves * cost.processors);
  const double efficiency =
      cost.gemm_efficiency * filled * gemm.depth / (gemm.depth + cost.gemm_half_depth);
  const double bytes =
      2 * gemm.batch *
      (gemm.rows * gemm.depth + gemm.depth * gemm.columns + gemm.rows * gemm.columns);
  return std::max(gemm.flops() / (cost.peak_flops * speed * efficiency),
                  traffic_seconds(cost, bytes));
}

double traffic_seconds(const CostParameters& cost, double bytes) {
  return bytes / cost.memory_bandwidth;
}

Group group_of(const CostParameters& cost, int ranks, int stride) {
  const double places = std::max(1.0, std::floor(cost.ranks_per_node / stride));
  return {ranks, std::min(ranks, static_cast<int>(places))};
}

double collective_seconds(const CostParameters& cost, trace::Op op, double bytes, Group group) {
  if (group.ranks <= 1) return 0;
  const double volume = bytes * bus_factor(op, group.ranks);
  if (group.per_node == group.ranks)
    return cost.node_latency * (0.5 + group.ranks / 16.0) + volume / cost.node_bandwidth;
  return 2 * cost.network_latency * std::log2(group.ranks) +
         volume / std::min(cost.network_bandwidth * group.per_node, cost.node_bandwidth);
}

}  // namespace lockstep::sim
