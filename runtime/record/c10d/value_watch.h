// ValueWatch: what a rank's gradients, parameters, buffers and optimiser hold, on its way into the
// trace as fingerprints (trace/values/fingerprint.h), in the steps that the scenario's `watch`
// names.
//
// Strategies hand in gradients as they give them away (local_gradient); the train loop the rest, in
// the order of the step: what backward finds, what the optimizer gets, what it makes of it.
//
// What lies on the host is in the trace when the call returns. A device that takes fingerprints
// itself (runtime/device/tensor_fingerprint.h) is asked for those of a step at its end, once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/device/tensor_fingerprint.h"
#include "runtime/job/scenario.h"
#include "runtime/models/parameters.h"
#include "runtime/record/recorder.h"

namespace torch::optim {
class Optimizer;
}

namespace lockstep::runtime {

// A part of a tensor that other ranks hold the rest of; its first element's place in the whole.
struct TensorPart {
  bool sharded = false;
  std::uint64_t first = 0;
};

class ValueWatch {
 public:
  // `recorder` must outlive the watch. Off where `options.every` is 0. `device`: takes the
  // fingerprints of what is not on the host; null: that is copied there.
  ValueWatch(const Scenario::Watch& options, Recorder& recorder,
             std::unique_ptr<DeviceFingerprints> device = nullptr)
      : options_(options), recorder_(recorder), device_(std::move(device)) {}

  // `micro_batches`: of the step that begins.
  void begin_step(std::int64_t step, std::size_t micro_batches);
  // Whether this step's values are recorded. All else does nothing in other steps.
  bool on() const { return on_; }
  // Several backwards add to one gradient: what a strategy reduces in each is not yet all of it.
  bool accumulates() const { return micro_batches_ > 1; }

  // Before backward: gradients that are there and not zero, as zero_grad leaves none.
  void leftovers(const NamedTensors& parameters);
  // This rank's own gradient, just before it is given to the reduction.
  void local_gradient(const std::string& name, const at::Tensor& gradient);
  void synced_gradient(const std::string& name, const at::Tensor& gradient, TensorPart part = {});
  void parameter(const std::string& name, const at::Tensor& value, TensorPart part = {});
  void buffers(const NamedTensors& buffers);
  // exp_avg and exp_avg_sq, or the momentum, of each parameter that has them: "exp_avg/NAME".
  void optimizer(const torch::optim::Optimizer& optimizer, const NamedTensors& parameters,
                 bool sharded);
  // A number that all ranks must agree on: "lr", "loss_scale", "stepped", "clip/image".
  void scalar(const std::string& name, double value);
  // After all of them: what the device was asked for goes into the trace.
  void end_step();

  // Time that taking fingerprints took so far.
  std::int64_t nanos() const { return nanos_; }

 private:
  // A value that is to be recorded, all but its fingerprint.
  struct Look {
    trace::RingWriter::State state;
    bool unless_zero = false;  // not recorded where all of it is 0
  };
  Look look(std::string_view name, const at::Tensor& value, trace::StateMark::Kind kind,
            trace::StateMark::When when, TensorPart part);
  void take(Look look, const at::Tensor& value, std::uint64_t first);
  void write(Look& look, const trace::Fingerprint& print);
  void record(std::string_view name, const at::Tensor& value, trace::StateMark::Kind kind,
              trace::StateMark::When when, TensorPart part = {});
  trace::RingWriter::StringRef text(std::string_view text);
  std::uint32_t sketch() const { return static_cast<std::uint32_t>(options_.sketch); }

  // So that a look-up makes no string.
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };

  const Scenario::Watch options_;
  Recorder& recorder_;
  std::unique_ptr<DeviceFingerprints> device_;
  std::vector<Look> asked_;  // of the device, in this step
  std::int64_t step_ = 0;
  std::size_t micro_batches_ = 1;
  bool on_ = false;
  std::int64_t nanos_ = 0;
  std::unordered_map<std::string, trace::RingWriter::StringRef, Hash, std::equal_to<>> texts_;
};

}  // namespace lockstep::runtime
