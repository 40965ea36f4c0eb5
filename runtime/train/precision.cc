#include "runtime/train/precision.h"

#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

#include "runtime/device/counted_memory.h"
#include "runtime/groups/collectives.h"
#include "runtime/record/c10d/host_read.h"

namespace lockstep::runtime {

using Precision = Scenario::Train::Precision;

Autocast::Autocast(Precision precision, c10::DeviceType device)
    : on_(precision != Precision::float32), device_(device) {
  if (!on_) return;
  const at::ScalarType lower = precision == Precision::bfloat16 ? at::kBFloat16 : at::kHalf;
  if (device_ == c10::DeviceType::Meta) {
    of_meta_.emplace(lower);
    return;
  }
  at::autocast::set_autocast_dtype(device_, lower);
  at::autocast::set_autocast_enabled(device_, true);
}

Autocast::~Autocast() {
  if (!on_ || of_meta_) return;
  at::autocast::set_autocast_enabled(device_, false);
  at::autocast::clear_cache();
}

LossScaler::LossScaler(const Scenario::Train& options, c10::intrusive_ptr<c10d::ProcessGroup> world,
                       Recorder& recorder, c10::Device device)
    : on_(options.precision == Precision::float16),
      growth_interval_(options.loss_scale.growth_interval),
      world_(std::move(world)),
      recorder_(recorder),
      scale_(at::full({1}, options.loss_scale.initial, at::device(device).dtype(at::kFloat))),
      growth_(at::zeros({1}, at::device(device).dtype(at::kInt))) {
  mark_memory(scale_, trace::MemoryCategory::optimizer_state);
  mark_memory(growth_, trace::MemoryCategory::optimizer_state);
}

bool LossScaler::unscale(const NamedTensors& parameters, Overflow of) {
  if (!on_) return false;
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients;
  for (const auto& [name, parameter] : parameters) {
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  }
  at::Tensor found = at::zeros({1}, scale_.options());
  if (!gradients.empty()) {
    at::_amp_foreach_non_finite_check_and_unscale_(gradients, found, scale_.reciprocal());
  }
  if (of == Overflow::on_another_rank) {
    for (const at::Tensor& gradient : gradients) gradient.nan_to_num_(0, 0, 0);
    found.zero_();
  }
  if (of != Overflow::on_this_rank) {
    const NoteScope scope(recorder_, recorder_.note({"found_inf"}, "amp.found_inf"));
    // All ranks must skip the same step, or their parameters diverge.
    all_reduce(*world_, found, Reduce::max);
  }
  constexpr double kGrowth = 2, kBackoff = 0.5;  // as torch.amp.GradScaler
  at::_amp_update_scale_(scale_, growth_, found, kGrowth, kBackoff, growth_interval_);
  const HostRead reading(recorder_, found);
  return found.item<float>() > 0;
}

double LossScaler::current() const {
  if (!on_) return 1;
  const HostRead reading(recorder_, scale_);
  return scale_.item<double>();
}

}  // namespace lockstep::runtime
