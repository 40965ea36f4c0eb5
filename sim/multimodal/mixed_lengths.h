// Layers over sequences of mixed lengths.
#pragma once

#include "sim/transformer/predict.h"

namespace lockstep::sim {

// Times of a layer for sequences of `tokens` tokens together and `squares` the sum of their
// squares, computed without padding between them: everything but attention as for one sequence of
// all tokens, in whole tiles of 128; attention in proportion to the squares, at the rate of a
// sequence of `reference` tokens. With equal sequences of the reference's length that is
// layer_times(). layout's micro_batch and sequence are not used.
LayerTimes mixed_layer_times(const Transformer& model, TrainingPlan layout,
                             const CostParameters& cost, double tokens, double squares,
                             std::int64_t reference);

}  // namespace lockstep::sim
