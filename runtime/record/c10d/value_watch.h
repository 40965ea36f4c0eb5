// ValueWatch: records what a rank's gradients, parameters, buffers and optimizer hold, as
// fingerprints (trace/values/fingerprint.h), in the steps that the scenario's `watch` names.
//
// Strategies pass gradients just before they reduce them (local_gradient). The train loop passes
// the rest, in the order of the step: leftovers before backward, what the optimizer gets, and its
// result.
//
// Host tensors are in the trace when the call returns. A device that computes fingerprints itself
// (runtime/device/tensor_fingerprint.h) delivers those of a step once, at the step's end.
#pragma once

#include <cstdint>
#include <functional>
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

// Whether a tensor is one rank's shard, and the index of its first element in the whole.
struct TensorPart {
  bool sharded = false;
  std::uint64_t first = 0;
};

class ValueWatch {
 public:
  // `recorder` must outlive the watch. Off if `options.every` is 0. `device`: computes fingerprints
  // of device tensors; null: they are copied to the host.
  ValueWatch(const Scenario::Watch& options, Recorder& recorder,
             std::unique_ptr<DeviceFingerprints> device = nullptr)
      : options_(options), recorder_(recorder), device_(std::move(device)) {}

  // `micro_batches`: of the step that begins.
  void begin_step(std::int64_t step, std::size_t micro_batches);
  // Whether this step's values are recorded. Otherwise all other functions do nothing.
  bool on() const { return on_; }
  // Whether several backwards add to one gradient, so what a strategy reduces in each is only a
  // part.
  bool accumulates() const { return micro_batches_ > 1; }

  // Before backward: records gradients that are defined and not zero; zero_grad leaves none.
  void leftovers(const NamedTensors& parameters);
  // This rank's own gradient, just before it is reduced.
  void local_gradient(const std::string& name, const at::Tensor& gradient);
  void synced_gradient(const std::string& name, const at::Tensor& gradient, TensorPart part = {});
  void parameter(const std::string& name, const at::Tensor& value, TensorPart part = {});
  void buffers(const NamedTensors& buffers);
  // exp_avg and exp_avg_sq, or the momentum, of each parameter that has them: "exp_avg/NAME".
  void optimizer(const torch::optim::Optimizer& optimizer, const NamedTensors& parameters,
                 bool sharded);
  // A number that all ranks must agree on: "lr", "loss_scale", "stepped", "clip/image".
  void scalar(const std::string& name, double value);
  // After all others: writes the fingerprints that the device computed.
  void end_step();

  // Time spent on fingerprints so far, in ns.
  std::int64_t nanos() const { return nanos_; }

 private:
  // A value to record, without its fingerprint.
  struct Look {
    trace::RingWriter::State state;
    bool unless_zero = false;  // skip it if all of it is 0
  };
  Look look(std::string_view name, const at::Tensor& value, trace::StateMark::Kind kind,
            trace::StateMark::When when, TensorPart part);
  void take(Look look, const at::Tensor& value, std::uint64_t first);
  void write(Look& look, const trace::Fingerprint& print);
  void record(std::string_view name, const at::Tensor& value, trace::StateMark::Kind kind,
              trace::StateMark::When when, TensorPart part = {});
  trace::RingWriter::StringRef text(std::string_view text);
  std::uint32_t sketch() const { return static_cast<std::uint32_t>(options_.sketch); }

  // Look-ups need no std::string.
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };

  const Scenario::Watch options_;
  Recorder& recorder_;
  std::unique_ptr<DeviceFingerprints> device_;
  std::vector<Look> asked_;  // pending on the device in this step
  std::int64_t step_ = 0;
  std::size_t micro_batches_ = 1;
  bool on_ = false;
  std::int64_t nanos_ = 0;
  std::unordered_map<std::string, trace::RingWriter::StringRef, Hash, std::equal_to<>> texts_;
};

}  // namespace lockstep::runtime
