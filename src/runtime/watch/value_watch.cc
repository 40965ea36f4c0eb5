#include "runtime/watch/value_watch.h"

#include <limits>
#include <mutex>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/api/include/torch/optim.h>

#include "base/clock.h"

namespace lockstep {

namespace {

constexpr std::int64_t kGrain = 1 << 15;  // elements that are worth a thread; a multiple of 8

template <class T>
Fingerprint take(const at::Tensor& tensor, std::uint32_t sketch, std::uint64_t first) {
  const T* values = tensor.const_data_ptr<T>();
  Fingerprinter whole(sketch);
  std::mutex mutex;
  at::parallel_for(0, tensor.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    Fingerprinter part(sketch);
    part.add(std::span<const T>(values + begin, static_cast<std::size_t>(end - begin)),
             first + static_cast<std::uint64_t>(begin));
    const std::lock_guard lock(mutex);
    whole.merge(part);
  });
  return whole.finish();
}

std::string dtype_name(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return "float32";
    case at::kDouble:
      return "float64";
    case at::kHalf:
      return "float16";
    case at::kBFloat16:
      return "bfloat16";
    case at::kLong:
      return "int64";
    case at::kInt:
      return "int32";
    default:
      return c10::toString(tensor.scalar_type());
  }
}

}  // namespace

Fingerprint fingerprint_of(const at::Tensor& tensor, std::uint32_t sketch, std::uint64_t first) {
  const at::NoGradGuard no_grad;
  const at::Tensor here = tensor.detach().cpu().contiguous();
  const bool narrow = here.scalar_type() == at::kHalf || here.scalar_type() == at::kBFloat16;
  if (narrow || here.scalar_type() == at::kFloat) {
    return take<float>(here.to(at::kFloat), sketch, first);
  }
  return take<double>(here.to(at::kDouble), sketch, first);
}

void ValueWatch::begin_step(std::int64_t step, std::size_t micro_batches) {
  step_ = step;
  micro_batches_ = micro_batches;
  on_ = options_.every > 0 && step % options_.every == 0;
}

void ValueWatch::leftovers(const NamedTensors& parameters) {
  if (!on_ || !options_.gradients) return;
  for (const auto& [name, parameter] : parameters) {
    const at::Tensor& gradient = parameter.grad();
    const Nanos began = monotonic_nanos();
    const bool empty = !gradient.defined() || gradient.count_nonzero().item<std::int64_t>() == 0;
    nanos_ += monotonic_nanos() - began;
    if (empty) continue;
    record(name, gradient, StateMark::Kind::grad, StateMark::When::local);
  }
}

void ValueWatch::local_gradient(const std::string& name, const at::Tensor& gradient) {
  if (!on_ || !options_.gradients) return;
  record(name, gradient, StateMark::Kind::grad, StateMark::When::local);
}

void ValueWatch::synced_gradient(const std::string& name, const at::Tensor& gradient,
                                 TensorPart part) {
  if (!on_ || !options_.gradients) return;
  record(name, gradient, StateMark::Kind::grad, StateMark::When::synced, part);
}

void ValueWatch::parameter(const std::string& name, const at::Tensor& value, TensorPart part) {
  if (!on_ || !options_.parameters) return;
  record(name, value, StateMark::Kind::param, StateMark::When::unspecified, part);
}

void ValueWatch::buffers(const NamedTensors& buffers) {
  if (!on_ || !options_.buffers) return;
  for (const auto& [name, value] : buffers) {
    record(name, value, StateMark::Kind::buffer, StateMark::When::unspecified);
  }
}

void ValueWatch::optimizer(const torch::optim::Optimizer& optimizer, const NamedTensors& parameters,
                           bool sharded) {
  if (!on_ || !options_.optimizer) return;
  const auto put = [&](const char* what, const std::string& name, const at::Tensor& value) {
    if (!value.defined()) return;
    record(std::string(what) + "/" + name, value, StateMark::Kind::optim,
           StateMark::When::unspecified, {sharded, 0});
  };
  for (const auto& [name, parameter] : parameters) {
    const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
    if (found == optimizer.state().end()) continue;
    if (const auto* adamw = dynamic_cast<torch::optim::AdamWParamState*>(found->second.get())) {
      put("exp_avg", name, adamw->exp_avg());
      put("exp_avg_sq", name, adamw->exp_avg_sq());
    } else if (const auto* sgd = dynamic_cast<torch::optim::SGDParamState*>(found->second.get())) {
      put("momentum_buffer", name, sgd->momentum_buffer());
    }
  }
}

void ValueWatch::scalar(const std::string& name, double value) {
  if (!on_) return;
  record(name, at::scalar_tensor(value, at::kDouble), StateMark::Kind::optim,
         StateMark::When::unspecified);
}

RingWriter::StringRef ValueWatch::name_ref(const std::string& name) {
  const auto [known, fresh] = names_.try_emplace(name);
  if (fresh) known->second = recorder_.ring().intern(name);
  return known->second;
}

void ValueWatch::record(const std::string& name, const at::Tensor& value, StateMark::Kind kind,
                        StateMark::When when, TensorPart part) {
  const Nanos began = monotonic_nanos();
  const Fingerprint print =
      fingerprint_of(value, static_cast<std::uint32_t>(options_.sketch), part.first);
  RingWriter::State state;
  state.n = step_;
  state.name = name_ref(name);
  state.dtype = name_ref(dtype_name(value));
  state.shape = value.sizes().vec();
  state.hash = print.hash;
  // What is not finite has no norm and no sketch to compare; its hash still tells it apart.
  state.norm = print.non_finite > 0 ? std::numeric_limits<double>::quiet_NaN() : print.norm;
  state.kind = kind;
  state.when = when;
  state.sharded = part.sharded;
  if (print.non_finite == 0) state.sketch = print.sketch;
  recorder_.ring().state(state);
  nanos_ += monotonic_nanos() - began;
}

}  // namespace lockstep
