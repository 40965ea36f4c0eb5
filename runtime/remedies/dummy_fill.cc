#include "runtime/remedies/dummy_fill.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "base/clock.h"
#include "runtime/data/shapes.h"
#include "runtime/groups/collectives.h"
#include "runtime/models/parameters.h"
#include "runtime/record/c10d/host_read.h"

namespace lockstep::runtime {

DummyFill::DummyFill(const Scenario::Remedy& options, RemedyParts p)
    : Remedy(std::move(p)), options_(options) {
  for (auto& [name, parameter] : trained_parameters(*parts().model)) {
    if (!needs_images(name) || !masks()) continue;
    // gradient-mask: zero the gradient of a dummy as soon as it is computed, before any strategy
    // (DDP's buckets, FSDP's reduce-scatter) sees it.
    parameter.register_hook([this](const at::Tensor& gradient) {
      return in_dummy_pass_ ? at::zeros_like(gradient) : gradient;
    });
  }
  const NamedTensors& given = parts().optimised;
  for (const auto& [name, tensor] : given.empty() ? trained_parameters(*parts().model) : given) {
    if (needs_images(name)) image_path_.push_back(tensor);
  }
}

void DummyFill::before_step(std::vector<Batch>& batches) {
  passes_ = static_cast<std::int64_t>(batches.size());
  contributions_ = std::count_if(batches.begin(), batches.end(),
                                 [](const Batch& batch) { return batch.has_image(); });
}

at::Tensor DummyFill::loss(const Batch& batch) {
  at::Tensor loss = Remedy::loss(batch);
  in_dummy_pass_ = !batch.has_image();
  // One for each run of the encoder that another rank's batch may have and this one lacks.
  for (int runs = batch.tower_runs(); runs < parts().tower_runs; ++runs) {
    const trace::Nanos began = monotonic_nanos();
    const at::Tensor term = dummy();
    parts().recorder.span("remedy.dummy_image", began);
    loss = joined(loss, term);
  }
  return loss;
}

at::Tensor DummyFill::dummy() {
  const bool empty = options_.kind == Scenario::Remedy::Kind::empty_image;
  return dummy_image_term(parts().model, batch_norm(), empty ? 0 : 1);
}

void DummyFill::after_sync() {
  const bool contributors = averages_over_contributors();
  if (!masks() && !contributors) return;
  // How many micro-batches of all ranks had images, of how many. The synchronised gradient is a
  // mean over `passes`; scaled by passes / contributed it is one over the contributors.
  const at::Tensor counts = at::tensor({contributions_, passes_}, at::kLong);
  {
    const NoteScope scope(parts().recorder,
                          parts().recorder.note({"contributions"}, "remedy.contributors"));
    all_reduce(*parts().groups.world(), counts);
  }
  std::int64_t contributed = 0, passes = 0;
  {
    const HostRead reading(parts().recorder, counts);
    contributed = counts[0].item<std::int64_t>();
    passes = counts[1].item<std::int64_t>();
  }
  const at::NoGradGuard no_grad;
  for (at::Tensor& parameter : image_path_) {
    at::Tensor& gradient = parameter.mutable_grad();
    if (!gradient.defined()) continue;
    if (contributed > 0 && contributors) {
      gradient.mul_(static_cast<double>(passes) / static_cast<double>(contributed));
    } else if (contributed == 0 && leaves_unused()) {
      gradient.reset();
    }
  }
}

at::Tensor dummy_image_term(ContrastiveModel& model, DummyBatchNorm batch_norm,
                            std::int64_t images) {
  const auto encoder = model->image_tower().module;
  const bool training = encoder->is_training();
  const bool learns = batch_norm == DummyBatchNorm::learns;
  if (!learns) encoder->eval();
  const std::int64_t side = learns ? model->input().side : 1;
  const auto where = model->parameters().front().device();
  // Without autocast. In bfloat16 LibTorch's convolutions on the CPU (oneDNN) leave parts of a
  // weight's gradient unset where a picture is smaller than the kernel: what memory held, at times
  // NaN, instead of the zeros of a term with weight 0.
  const c10::impl::ExcludeDispatchKeyGuard in_float32(c10::autocast_dispatch_keyset);
  const at::Tensor path = model->image_path(at::zeros({images, kImageChannels, side, side}, where));
  encoder->train(training);
  // 0 times infinity is NaN: replace what is not finite before multiplying.
  return 0 * at::nan_to_num(path, 0.0, 0.0, 0.0);
}

}  // namespace lockstep::runtime
