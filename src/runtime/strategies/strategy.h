// Strategy: how the ranks' gradients become one. A file per strategy beside this one.
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

#include "job/scenario.h"
#include "runtime/models/contrastive.h"
#include "runtime/process_groups.h"
#include "runtime/record/recorder.h"

namespace lockstep {

// A micro-batch's place in its optimiser step. Gradients of all of them add up; the last one's
// backward is where a strategy that overlaps may communicate.
enum class Pass { accumulate, last };

// Called by the train loop in this order: start once; then for each step, before_forward and
// backward for each of its micro-batches, then synchronise. Every one may communicate, and throws
// what c10d throws.
class Strategy {
 public:
  virtual ~Strategy() = default;

  // Makes all ranks begin with rank 0's parameters and buffers.
  virtual void start() = 0;
  virtual void before_forward(Pass pass) = 0;
  virtual void backward(const at::Tensor& loss, Pass pass) = 0;
  // Afterwards each trained parameter's gradient is the mean over the ranks, where the strategy
  // and the data allow it. Nothing to do for strategies that synchronise inside backward.
  virtual void synchronise() = 0;
};

// What a strategy works on; all of it outlives the strategy.
struct StrategyParts {
  ContrastiveModel model;
  ProcessGroups& groups;
  Recorder& recorder;
};

// Makes the scenario's strategy and its process groups: collective, on all ranks alike.
std::unique_ptr<Strategy> make_strategy(const Scenario::Strategy& options, StrategyParts parts);

}  // namespace lockstep
