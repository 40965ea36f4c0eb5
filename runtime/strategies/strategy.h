// Strategy: how the ranks' gradients become one. A file per strategy beside this one.
#pragma once

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

// A micro-batch's place in its optimiser step. Gradients of all of them add up; the last one's
// backward is where a strategy that overlaps may communicate.
enum class Pass { accumulate, last };

// Called by the train loop in this order: start once; then for each step, before_forward and
// backward for each of its micro-batches (unless run_step does it all), then synchronise. Every one
// may communicate, and throws what c10d throws.
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

  // What a strategy that orders the step's forwards and backwards itself made of it.
  struct OwnStep {
    double loss = 0;        // mean over the micro-batches
    trace::Nanos idle = 0;  // … of the step's time, spent waiting for other ranks
  };
  // Runs all forwards and backwards of a step in the place of before_forward and backward; nullopt
  // where the loop is to do it.
  virtual std::optional<OwnStep> run_step(const std::vector<Batch>&) { return std::nullopt; }

  // What the optimizer updates, and whose gradients are unscaled and clipped: the trained
  // parameters, unless the strategy keeps them in another form. Named so that branch_of() knows
  // their branch. The same tensors for as long as the strategy lives.
  virtual NamedTensors optimised(const ContrastiveModel& model) {
    return trained_parameters(*model);
  }
  // Where the optimised tensor `name` begins in the whole that ranks share it of; nothing where it
  // is the whole.
  virtual std::optional<std::uint64_t> shard_begin(const std::string&) { return std::nullopt; }
  // The squared norm of a group of gradients from what this rank has of it: all of it, unless the
  // strategy shards them (then collective).
  virtual double norm_squared(double own) { return own; }
  // Whole parameters, for checkpoints that any number of ranks can load. `part` is of the shape of
  // the optimised tensor `name`: the tensor itself, or what the optimizer keeps of it. Gives the
  // parameters whose part it is, under their own names. Collective where parameters are sharded.
  virtual NamedTensors whole(const std::string& name, const at::Tensor& part) {
    return {{name, part}};
  }
  // The other way: this rank's part, of `whole(parameter's name, a tensor of its shape)`.
  using WholeTensor = std::function<at::Tensor(const std::string&, const at::Tensor&)>;
  virtual at::Tensor part(const std::string& name, const at::Tensor& optimised,
                          const WholeTensor& whole) {
    return whole(name, optimised);
  }
  // Makes every rank's model whole until the next before_forward, so that one rank can use it
  // alone. Collective.
  virtual void gather_everything() {}
};

// What a strategy works on; all of it outlives the strategy.
struct StrategyParts {
  ContrastiveModel model;
  ProcessGroups& groups;
  Recorder& recorder;
  // Takes each rank's own gradients, just before they are reduced; null: nobody asks.
  ValueWatch* watch = nullptr;
  // What the tags of reductions say of the mean that they are to be: " average=world", or nothing.
  std::string average = {};
  // Of process_groups: image-ranks, the members of the image path's group.
  std::vector<std::int32_t> image_ranks = {};
  // What goes wrong on purpose; those that are not of a strategy change nothing here.
  Fault fault = Fault::none;
};

// Makes the scenario's strategy and its process groups: collective, on all ranks alike.
std::unique_ptr<Strategy> make_strategy(const Scenario::Strategy& options, StrategyParts parts);

// A hook behind the accumulation of a parameter's gradient.

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
