#include "sim/multimodal/encoder_time.h"

#include <algorithm>
#include <cmath>

namespace lockstep::sim {
namespace {

constexpr double kTile = 128;  // of matrix products: gemm_seconds()
// Longer than this, tokens count as several sequences: sizes stay within what layer_times() takes.
constexpr double kLongest = 65536;

double whole_tiles(double tokens) { return std::ceil(tokens / kTile) * kTile; }

LayerTimes times_of(const Transformer& model, TrainingPlan layout, const CostParameters& cost,
                    std::int64_t micro_batch, std::int64_t sequence) {
  layout.micro_batch = micro_batch;
  layout.sequence = sequence;
  return layer_times(model, layout, cost);
}

// A frozen encoder keeps no activations that could be computed again.
TrainingPlan layout_of(const EncoderTower& tower, TrainingPlan layout) {
  if (tower.frozen) layout.recompute = Recompute::none;
  return layout;
}

// An encoder's attention runs at the rate of sequences of this length.
constexpr std::int64_t kReference = 4096;

}  // namespace

MixedLayers::MixedLayers(const Transformer& model, TrainingPlan layout, const CostParameters& cost,
                         std::int64_t reference)
    : model_(model),
      layout_(layout),
      cost_(cost),
      reference_(static_cast<double>(reference)),
      of_reference_(times_of(model, layout, cost, 1, reference)) {}

LayerTimes MixedLayers::times(double tokens, double squares) const {
  const std::int64_t micro_batch =
      std::max<std::int64_t>(1, std::llround(std::ceil(tokens / kLongest)));
  const std::int64_t sequence = std::llround(
      whole_tiles(std::max(1.0, tokens / static_cast<double>(micro_batch))) * layout_.context);
  auto known = known_.find({micro_batch, sequence});
  if (known == known_.end())
    known = known_
                .emplace(std::pair(micro_batch, sequence),
                         times_of(model_, layout_, cost_, micro_batch, sequence))
                .first;
  LayerTimes times = known->second;
  // Attention in proportion to the squares, at the rate of a long sequence, which fills the GPU.
  const double count = squares / (reference_ * reference_);
  const auto replace_attention = [&](LayerTime& time, const LayerTime& one) {
    if (time.attention == 0) return;
    time.kernels += count * one.attention - time.attention;
    time.attention = count * one.attention;
  };
  replace_attention(times.forward, of_reference_.forward);
  replace_attention(times.backward, of_reference_.backward);
  replace_attention(times.recompute, of_reference_.recompute);
  return times;
}

EncoderTimes::EncoderTimes(const EncoderTower& tower, const TrainingPlan& layout,
                           std::int64_t llm_hidden, const CostParameters& cost,
                           const LayerExchange& exchange)
    : tower_(tower),
      layout_(layout_of(tower, layout)),
      llm_hidden_(static_cast<double>(llm_hidden)),
      cost_(cost),
      exchange_(exchange),
      layers_(tower.model, layout_, cost, kReference) {}

// Two products from merge x hidden to the LLM's width, for `tokens` tokens of the LLM.
TowerTime EncoderTimes::projector_time(double tokens) const {
  const double rows = whole_tiles(tokens);
  const auto known = projectors_.find(rows);
  if (known != projectors_.end()) return known->second;
  const double in = static_cast<double>(tower_.merge) * static_cast<double>(tower_.model.hidden);
  const double between = static_cast<double>(tower_.projector_hidden) / layout_.tensor;
  TowerTime time;
  for (const Gemm& gemm : {Gemm{rows, between, in}, Gemm{rows, llm_hidden_, between}}) {
    time.forward += gemm_seconds(cost_, gemm);
    if (!tower_.projector_frozen)
      time.weight += gemm_seconds(cost_, {gemm.depth, gemm.columns, gemm.rows});
    if (!tower_.frozen) time.backward += gemm_seconds(cost_, {gemm.rows, gemm.depth, gemm.columns});
  }
  time.backward += time.weight;
  projectors_.emplace(rows, time);
  return time;
}

TowerTime EncoderTimes::of(const EncoderLoad& load, double share, bool projector) const {
  if (load.tokens <= 0) return {};
  LayerTimes times = layers_.times(load.tokens, load.squares);
  if (tower_.frozen) times.backward = times.recompute = {};
  const PieceTime layers = piece_time(layout_, cost_, times, exchange_,
                                      static_cast<double>(tower_.model.layers) * share);
  TowerTime out{layers.forward, layers.backward, layers.weight};
  if (!projector) return out;
  const TowerTime end = projector_time(load.tokens / static_cast<double>(tower_.merge));
  out.forward += end.forward;
  out.backward += end.backward;
  out.weight += end.weight;
  return out;
}

}  // namespace lockstep::sim
