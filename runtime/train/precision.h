// Mixed precision: autocast of the forward pass, and for float16 the dynamic scaling of the loss.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "runtime/job/scenario.h"
#include "runtime/models/contrastive.h"
#include "runtime/record/recorder.h"

namespace lockstep::runtime {

// While it lives, operations on this kind of device that gain from it run in the lower precision
// (torch.autocast's lists). Nothing with float32.
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
};

// Scales the loss so that float16 gradients do not vanish, as torch.amp.GradScaler does: the scale
// halves after an overflow, whose step is left out, and doubles after growth_interval steps without
// one. With other precisions the scale is 1 and nothing is ever left out.
class LossScaler {
 public:
  // `recorder` must outlive the scaler. `device`: where the gradients lie.
  LossScaler(const Scenario::Train& options, c10::intrusive_ptr<c10d::ProcessGroup> world,
             Recorder& recorder, c10::Device device = c10::DeviceType::CPU);

  at::Tensor scale(const at::Tensor& loss) const { return on_ ? loss * scale_ : loss; }

  // Divides the gradients by the scale and says whether one of them was not finite: on any rank
  // (one all-reduce), or on this one alone. Then adapts the scale.
  enum class Overflow { on_any_rank, on_this_rank };
  bool unscale(const NamedTensors& parameters, Overflow of = Overflow::on_any_rank);

  double current() const;

  // The state that a checkpoint keeps: scale and steps since it changed. Float and int scalars.
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
