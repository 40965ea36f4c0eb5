// Strategy: how the ranks' gradients are combined. One file per strategy in this folder.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function_hook.h>

#include "base/clock.h"
#include "runtime/groups/process_groups.h"
#include "runtime/job/scenario.h"
#include "runtime/models/batch.h"
#include "runtime/models/contrastive.h"
#include "runtime/record/c10d/value_watch.h"
#include "runtime/record/recorder.h"

namespace lockstep::runtime {

// A micro-batch's position in its optimizer step. The gradients of all micro-batches add up; a
// strategy that overlaps communication with computing may communicate in the last one's backward.
enum class Pass { accumulate, last };

// Called by the train loop in this order: start once; then for each step, before_forward and
// backward for each of its micro-batches (unless run_step does it all), then synchronise. Each may
// communicate, and throws what c10d throws.
class Strategy {
 public:
  virtual ~Strategy() = default;

  // Gives all ranks rank 0's parameters and buffers.
  virtual void start() = 0;
  virtual void before_forward(Pass pass) = 0;
  virtual void backward(const at::Tensor& loss, Pass pass) = 0;
  // Afterwards each trained parameter's gradient is the mean over the ranks, as far as strategy and
  // data allow. Empty for strategies that synchronise inside backward.
  virtual void synchronise() = 0;

  // The result of a strategy that orders the step's forwards and backwards itself.
  struct OwnStep {
    double loss = 0;        // mean over the micro-batches
    trace::Nanos idle = 0;  // part of the step spent waiting for other ranks
  };
  // Runs all forwards and backwards of a step, instead of before_forward and backward; nullopt if
  // the strategy leaves them to the loop.
  virtual std::optional<OwnStep> run_step(const std::vector<Batch>&) { return std::nullopt; }

  // The tensors that the optimizer updates, and whose gradients are unscaled and clipped: the
  // trained parameters, unless the strategy keeps them in another form. Their names are such that
  // branch_of() finds their branch. The same tensors for as long as the strategy lives.
  virtual NamedTensors optimised(const ContrastiveModel& model) {
    return trained_parameters(*model);
  }
  // The index of the first element of the shard `name` in the whole tensor; nothing if `name` is
  // not sharded.
  virtual std::optional<std::uint64_t> shard_begin(const std::string&) { return std::nullopt; }
  // The squared norm of a group of gradients, from that of this rank's part. They are the same
  // unless the strategy shards gradients (then collective).
  virtual double norm_squared(double own) { return own; }
  // Whole parameters, for checkpoints that any number of ranks can load. `part` has the shape of
  // the optimised tensor `name`: that tensor, or optimizer state of it. Returns the parameters that
  // it is a part of, under their own names. Collective if parameters are sharded.
  virtual NamedTensors whole(const std::string& name, const at::Tensor& part) {
    return {{name, part}};
  }
  // The inverse: this rank's part of `whole(parameter's name, a tensor of its shape)`.
  using WholeTensor = std::function<at::Tensor(const std::string&, const at::Tensor&)>;
  virtual at::Tensor part(const std::string& name, const at::Tensor& optimised,
                          const WholeTensor& whole) {
    return whole(name, optimised);
  }
  // Called before and after the model computes without gradients, on all ranks. Collective.
  virtual void begin_inference() {}
  virtual void end_inference() {}
  // Makes every rank's model whole until the next before_forward, so that one rank can use it
  // without the others. Collective.
  virtual void gather_everything() {}
};

// What a strategy works on. All of it must outlive the strategy.
struct StrategyParts {
  ContrastiveModel model;
  ProcessGroups& groups;
  Recorder& recorder;
  // Sees each rank's own gradients just before they are reduced; null: not wanted.
  ValueWatch* watch = nullptr;
  // Appended to the tags of reductions: " average=world" (the mean that they are meant to compute),
  // or nothing.
  std::string average = {};
  // With process_groups: image-ranks: the members of the image path's group.
  std::vector<std::int32_t> image_ranks = {};
  // Deliberate mistake; faults that do not concern a strategy have no effect here.
  Fault fault = Fault::none;
};

// Makes the scenario's strategy and its process groups: collective, on all ranks alike.
std::unique_ptr<Strategy> make_strategy(const Scenario::Strategy& options, StrategyParts parts);

// A hook that runs after a parameter's gradient was accumulated.
class AfterAccumulation : public torch::autograd::FunctionPostHook {
 public:
  explicit AfterAccumulation(std::function<void()> then) : then_(std::move(then)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    then_();
    return outputs;
  }

 private:
  std::function<void()> then_;
};

}  // namespace lockstep::runtime
