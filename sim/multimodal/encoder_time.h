// What an encoder takes for the items of a rank, and a layer for sequences of mixed lengths.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "sim/multimodal/dealt_step.h"
#include "sim/multimodal/multimodal_plan.h"
#include "sim/transformer/predict.h"

namespace lockstep::sim {

// Times of a layer for sequences that are packed without padding. Attention takes time in
// proportion to the squares of their lengths, at the rate of a sequence of `reference` tokens.
// Everything else takes as long as for one sequence of all tokens, in whole tiles of 128. If all
// sequences have the reference's length, the result is that of layer_times(). layout's micro_batch
// and sequence are not used.
//
// A step asks once for every rank and micro-batch, so what a number of tiles takes is computed once
// and kept. Refers to `model` and `cost`.
class MixedLayers {
 public:
  MixedLayers(const Transformer& model, TrainingPlan layout, const CostParameters& cost,
              std::int64_t reference);

  // `tokens`: the sum of the sequences' lengths; `squares`: the sum of their squares.
  LayerTimes times(double tokens, double squares) const;

 private:
  const Transformer& model_;
  TrainingPlan layout_;
  const CostParameters& cost_;
  double reference_;
  LayerTimes of_reference_;
  mutable std::map<std::pair<std::int64_t, std::int64_t>, LayerTimes> known_;  // by size
};

// Seconds of one rank for a load of an encoder and its projector, on `layout.tensor` GPUs;
// `weight`: the part of `backward` that a schedule may put off (PieceTime).
struct TowerTime {
  double forward = 0, backward = 0, weight = 0;
};
// Items are computed without padding between them (as FlashAttention's variable lengths): products
// by all tokens together, attention by the sum of squares. Tokens count in whole tiles of 128, so
// that more never take less. Refers to `tower` and `cost`.
class EncoderTimes {
 public:
  // `exchange`: of a layer (layer_exchange()).
  EncoderTimes(const EncoderTower& tower, const TrainingPlan& layout, std::int64_t llm_hidden,
               const CostParameters& cost, const LayerExchange& exchange);

  // `share`: of its layers; the projector goes with the last of them.
  TowerTime of(const EncoderLoad& load, double share = 1, bool projector = true) const;

 private:
  TowerTime projector_time(double tokens) const;

  const EncoderTower& tower_;
  TrainingPlan layout_;
  double llm_hidden_;
  const CostParameters& cost_;
  LayerExchange exchange_;
  MixedLayers layers_;
  mutable std::map<double, TowerTime> projectors_;  // by tokens, in whole tiles; as `known_` above
};

}  // namespace lockstep::sim
