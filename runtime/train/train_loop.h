// The training loop of one rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <torch/csrc/api/include/torch/optim.h>

#include "runtime/groups/process_groups.h"
#include "runtime/job/scenario.h"
#include "runtime/models/contrastive.h"
#include "runtime/record/c10d/value_watch.h"
#include "runtime/record/recorder.h"
#include "runtime/remedies/remedy.h"
#include "runtime/strategies/stage_lengths.h"
#include "runtime/strategies/strategy.h"
#include "runtime/train/balancer.h"
#include "runtime/train/batch_source.h"
#include "runtime/train/checkpoint.h"
#include "runtime/train/precision.h"
#include "runtime/train/result.h"

namespace lockstep::runtime {

class TrainLoop {
 public:
  // Creates data, model, strategy and remedy from the scenario, and the process groups that they
  // need: collective. All references must outlive the loop; `log` may be null. With `data_of` every
  // step trains on the batches of all ranks of that job, one after the other. On the meta device
  // nothing is read or stored, and losses are NaN. Throws what LibTorch throws.
  TrainLoop(const Scenario& scenario, ProcessGroups& groups, Recorder& recorder,
            WorkerResult& result, StepLog* log = nullptr, const Scenario* data_of = nullptr);
  virtual ~TrainLoop() = default;
  TrainLoop(const TrainLoop&) = delete;
  TrainLoop& operator=(const TrainLoop&) = delete;

  // Trains to the last step. Records each step's data, modalities and loss, and updates the result
  // as it goes: when a step throws, the result holds the finished steps, and the recorder's context
  // holds the step that failed. Afterwards rank 0 evaluates, if the scenario asks for it.
  void run();

  // Bytes of this rank's training state: parameters, gradients and optimizer state.
  double state_bytes() const;

 protected:
  // The parts of a step that runtime/faults/ overrides to make a deliberate mistake, and the
  // helpers that these need.

  // Before the step's first backward.
  virtual void clear_gradients();
  // Turns the gradients of the last backward into the parameters of the next step.
  virtual void update();
  virtual void wait_after_checkpoint();

  // Averages the gradients over the ranks, as the strategy does it.
  void synchronise();
  // Scales gradients down to their limits, if there are any. Returns the factors by name. `whole`
  // is that of clip_gradients().
  using ClipFactors = std::vector<std::pair<std::string, double>>;
  ClipFactors clip(const std::function<double(double)>& whole);
  std::function<double(double)> norm_over_shards();
  // Calls the optimizer and records the result. Not called after an overflow.
  void step_optimizer(const ClipFactors& factors);
  void leave_step_out() { watch_update(false); }

  Fault fault() const { return scenario_.fault; }
  ProcessGroups& groups() { return groups_; }
  // True if a gradient was not finite. Afterwards the gradients are those of the unscaled loss.
  bool overflowed(LossScaler::Overflow of = LossScaler::Overflow::on_any_rank);

 private:
  void open_data(const Scenario* data_of);
  // The first step to train: that of the last checkpoint, which is loaded, or 0.
  std::int64_t resume();
  void warn_of_earlier_checkpoints() const;
  void save(std::int64_t steps);
  TrainingState state();
  StepMetrics one_step(std::int64_t step);
  // Records what the step holds: the indices of all micro-batches, and the modalities. Returns the
  // number of samples.
  std::int64_t record_contents(std::int64_t step, const std::vector<Batch>& batches);
  std::vector<Batch> micro_batches(std::int64_t step);
  void generate(std::int64_t step);
  // Forward and backward of all micro-batches. Returns the mean of their losses.
  double accumulate(std::int64_t step, const std::vector<Batch>& batches);
  // Records the values after the update; `stepped`: whether the optimizer was called.
  void watch_update(bool stepped);
  TensorPart part_of(const std::string& name);
  void evaluate();

  const Scenario& scenario_;
  ProcessGroups& groups_;
  Recorder& recorder_;
  WorkerResult& result_;
  StepLog* log_;
  std::optional<ShapeBatches> shapes_;  // on the meta device, instead of data_
  std::unique_ptr<BatchSource> data_;
  std::vector<std::unique_ptr<BatchSource>> further_data_;  // of the other ranks of `data_of`
  std::size_t own_batches_ = 0;  // micro-batches of the step that come from data_
  ContrastiveModel model_{nullptr};
  std::optional<Balancer> balancer_;
  std::optional<FeatureGather> gather_;  // with global negatives
  NamedTensors optimised_;
  ValueWatch watch_;
  std::unique_ptr<Strategy> strategy_;
  std::optional<StageLengths> lengths_;  // with exchange_lengths
  std::unique_ptr<Remedy> remedy_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::optional<LossScaler> scaler_;
  at::Tensor prompt_;  // the first token of each text of the step's first batch
  std::optional<Checkpoints> checkpoints_;
};

}  // namespace lockstep::runtime
