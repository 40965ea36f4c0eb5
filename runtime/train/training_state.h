// Everything that the next step depends on, as tensors with names, and back.
#pragma once

#include <map>
#include <string>

#include <torch/csrc/api/include/torch/optim.h>

#include "runtime/models/named_tensors.h"
#include "runtime/strategies/strategy.h"
#include "runtime/train/precision.h"

namespace lockstep {

// What is saved, and loaded in place. Beside it: the CPU's random numbers.
struct TrainingState {
  NamedTensors optimised;  // what the optimizer updates
  NamedTensors buffers;
  torch::optim::Optimizer& optimizer;
  LossScaler& scaler;
};

// This rank's own, contiguous: "parameter.", "optimizer." and "buffer." before the names,
// ".exp_avg", ".exp_avg_sq" and ".step" (one number) behind the optimizer's.
NamedTensors tensors_of_rank(const TrainingState& state);

// The same with whole parameters and buffers under their own names. Collective where the strategy
// shards; where `keep` is false, this rank only takes part, and gets nothing.
NamedTensors whole_tensors(const TrainingState& state, Strategy& strategy, bool keep);

using TensorsByName = std::map<std::string, at::Tensor>;

// Copies what one of the two gave into the state. Returns the first name that is missing or has
// another shape, and then the state is spoilt; empty: all is there.
std::string restore(TrainingState& state, Strategy& strategy, const TensorsByName& stored,
                    bool is_whole);

}  // namespace lockstep
