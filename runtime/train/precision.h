// Mixed precision: autocast of the forward pass, and for float16 the dynamic scaling of the loss.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "runtime/derive/torch/meta_tensors.h"
#include "runtime/job/scenario.h"
#include "runtime/models/contrastive.h"
#include "runtime/record/recorder.h"

namespace lockstep::runtime {

// While it lives, operations that gain from it run in the lower precision on this kind of device
// (torch.autocast's lists). Does nothing for float32.
class Autocast {
 public:
  explicit Autocast(Scenario::Train::Precision precision,
                    c10::DeviceType device = c10::DeviceType::CPU);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool on_;
  c10::DeviceType device_;
  std::optional<MetaAutocast> of_meta_;  // which LibTorch's does not know
};

// Scales the loss so that float16 gradients do not underflow, as torch.amp.GradScaler does. After
// an overflow the step is skipped and the scale halves; after growth_interval steps without one it
// doubles. With other precisions the scale is 1 and no step is skipped.
class LossScaler {
 public:
  // `recorder` must outlive the scaler. `device`: the gradients' device.
  LossScaler(const Scenario::Train& options, c10::intrusive_ptr<c10d::ProcessGroup> world,
             Recorder& recorder, c10::Device device = c10::DeviceType::CPU);

  at::Tensor scale(const at::Tensor& loss) const { return on_ ? loss * scale_ : loss; }

  // Divides the gradients by the scale, and returns whether one of them was not finite: on any rank
  // (one all-reduce), on this rank, or on any other one (the same all-reduce; what is not finite
  // here becomes 0). Then adapts the scale.
  enum class Overflow { on_any_rank, on_this_rank, on_another_rank };
  bool unscale(const NamedTensors& parameters, Overflow of = Overflow::on_any_rank);

  double current() const;

  // State for checkpoints: the scale (float), and the steps since it changed (int).
  at::Tensor scale_state() const { return scale_; }
  at::Tensor growth_state() const { return growth_; }

 private:
  bool on_;
  std::int64_t growth_interval_;
  c10::intrusive_ptr<c10d::ProcessGroup> world_;
  Recorder& recorder_;
  at::Tensor scale_, growth_;
};

}  // namespace lockstep::runtime
