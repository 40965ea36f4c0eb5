#include "sim/multimodal/encoder_time.h"

#include <algorithm>
#include <cmath>

namespace lockstep::sim {
namespace {

constexpr double kTile = 128;  // of matrix products: gemm_seconds()
// Longer than this, tokens count as several sequences: sizes stay within what layer_times() takes.
constexpr double kLongest = 65536;

double whole_tiles(double tokens) { return std::ceil(tokens / kTile) * kTile; }

// Two products from merge x hidden to the LLM's width, for `tokens` tokens of the LLM.
TowerTime projector_time(const EncoderTower& tower, const TrainingPlan& layout,
                         std::int64_t llm_hidden, const CostParameters& cost, double tokens) {
  const double rows = whole_tiles(tokens);
  const double in = static_cast<double>(tower.merge) * static_cast<double>(tower.model.hidden);
  const double between = static_cast<double>(tower.projector_hidden) / layout.tensor;
  const auto out = static_cast<double>(llm_hidden);
  TowerTime time;
  for (const Gemm& gemm : {Gemm{rows, between, in}, Gemm{rows, out, between}}) {
    time.forward += gemm_seconds(cost, gemm);
    if (!tower.projector_frozen)
      time.backward += gemm_seconds(cost, {gemm.depth, gemm.columns, gemm.rows});
    if (!tower.frozen) time.backward += gemm_seconds(cost, {gemm.rows, gemm.depth, gemm.columns});
  }
  return time;
}

}  // namespace

LayerTimes mixed_layer_times(const Transformer& model, TrainingPlan layout,
                             const CostParameters& cost, double tokens, double squares,
                             std::int64_t reference) {
  layout.micro_batch = std::max<std::int64_t>(1, std::llround(std::ceil(tokens / kLongest)));
  layout.sequence =
      std::llround(whole_tiles(std::max(1.0, tokens / static_cast<double>(layout.micro_batch))) *
                   layout.context);
  LayerTimes times = layer_times(model, layout, cost);
  // Attention in proportion to the squares, at the rate of a long sequence, which fills the GPU.
  TrainingPlan one_sequence = layout;
  one_sequence.micro_batch = 1;
  one_sequence.sequence = reference;
  const LayerTimes of_one = layer_times(model, one_sequence, cost);
  const double count = squares / (static_cast<double>(reference) * static_cast<double>(reference));
  const auto replace_attention = [&](LayerTime& time, const LayerTime& one) {
    if (time.attention == 0) return;
    time.kernels += count * one.attention - time.attention;
    time.attention = count * one.attention;
  };
  replace_attention(times.forward, of_one.forward);
  replace_attention(times.backward, of_one.backward);
  replace_attention(times.recompute, of_one.recompute);
  return times;
}

TowerTime encoder_time(const EncoderTower& tower, const TrainingPlan& layout,
                       std::int64_t llm_hidden, const CostParameters& cost,
                       const LayerExchange& exchange, const EncoderLoad& load, double share,
                       bool projector) {
  if (load.tokens <= 0) return {};
  TrainingPlan plan = layout;
  if (tower.frozen) plan.recompute = Recompute::none;
  // Attention runs at the rate of sequences of this length.
  constexpr std::int64_t kReference = 4096;
  LayerTimes times =
      mixed_layer_times(tower.model, plan, cost, load.tokens, load.squares, kReference);
  if (tower.frozen) times.backward = times.recompute = {};
  const PieceTime layers =
      piece_time(plan, cost, times, exchange, static_cast<double>(tower.model.layers) * share);
  TowerTime out{layers.forward, tower.frozen ? 0 : layers.backward};
  if (!projector) return out;
  const TowerTime end = projector_time(tower, layout, llm_hidden, cost,
                                       load.tokens / static_cast<double>(tower.merge));
  out.forward += end.forward;
  out.backward += end.backward;
  return out;
}

}  // namespace lockstep::sim
