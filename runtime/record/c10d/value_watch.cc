#include "runtime/record/c10d/value_watch.h"

#include <limits>
#include <span>
#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/api/include/torch/optim.h>

#include "base/clock.h"
#include "runtime/record/c10d/host_read.h"
#include "runtime/record/c10d/recorded_group.h"

namespace lockstep::runtime {

namespace {

// Adds its lifetime to a sum.
class Timed {
 public:
  explicit Timed(std::int64_t& sum) : sum_(sum), began_(monotonic_nanos()) {}
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;
  ~Timed() { sum_ += monotonic_nanos() - began_; }

 private:
  std::int64_t& sum_;
  trace::Nanos began_;
};

}  // namespace

void ValueWatch::begin_step(std::int64_t step, std::size_t micro_batches) {
  step_ = step;
  micro_batches_ = micro_batches;
  on_ = options_.every > 0 && step % options_.every == 0;
}

void ValueWatch::leftovers(const NamedTensors& parameters) {
  if (!on_ || !options_.gradients) return;
  for (const auto& [name, parameter] : parameters) {
    const at::Tensor& gradient = parameter.grad();
    if (!gradient.defined()) continue;
    const Timed timed(nanos_);
    Look found =
        look(name, gradient, trace::StateMark::Kind::grad, trace::StateMark::When::local, {});
    found.unless_zero = true;  // zero_grad may fill gradients with zeros: no leftover
    take(std::move(found), gradient, 0);
  }
}

void ValueWatch::local_gradient(const std::string& name, const at::Tensor& gradient) {
  if (!on_ || !options_.gradients) return;
  record(name, gradient, trace::StateMark::Kind::grad, trace::StateMark::When::local);
}

void ValueWatch::synced_gradient(const std::string& name, const at::Tensor& gradient,
                                 TensorPart part) {
  if (!on_ || !options_.gradients) return;
  record(name, gradient, trace::StateMark::Kind::grad, trace::StateMark::When::synced, part);
}

void ValueWatch::parameter(const std::string& name, const at::Tensor& value, TensorPart part) {
  if (!on_ || !options_.parameters) return;
  record(name, value, trace::StateMark::Kind::param, trace::StateMark::When::unspecified, part);
}

void ValueWatch::buffers(const NamedTensors& buffers) {
  if (!on_ || !options_.buffers) return;
  for (const auto& [name, value] : buffers) {
    record(name, value, trace::StateMark::Kind::buffer, trace::StateMark::When::unspecified);
  }
}

void ValueWatch::optimizer(const torch::optim::Optimizer& optimizer, const NamedTensors& parameters,
                           bool sharded) {
  if (!on_ || !options_.optimizer) return;
  const auto put = [&](const char* what, const std::string& name, const at::Tensor& value) {
    if (!value.defined()) return;
    record(std::string(what) + "/" + name, value, trace::StateMark::Kind::optim,
           trace::StateMark::When::unspecified, {sharded, 0});
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
  const Timed timed(nanos_);
  Look found;
  found.state.n = step_;
  found.state.name = text(name);
  found.state.dtype = text("float64");
  found.state.kind = trace::StateMark::Kind::optim;
  trace::Fingerprinter taken(sketch());
  taken.add(std::span<const double>(&value, 1), 0);
  write(found, taken.finish());
}

void ValueWatch::end_step() {
  if (asked_.empty()) return;
  const Timed timed(nanos_);
  std::vector<Look> asked = std::exchange(asked_, {});
  const std::vector<trace::Fingerprint> prints = [&] {
    const Recorder::HostWait reading(recorder_);
    return device_->collect();
  }();
  for (std::size_t i = 0; i < asked.size(); ++i) write(asked[i], prints.at(i));
}

trace::RingWriter::StringRef ValueWatch::text(std::string_view text) {
  const auto known = texts_.find(text);
  if (known != texts_.end()) return known->second;
  return texts_.emplace(text, recorder_.ring().intern(text)).first->second;
}

ValueWatch::Look ValueWatch::look(std::string_view name, const at::Tensor& value,
                                  trace::StateMark::Kind kind, trace::StateMark::When when,
                                  TensorPart part) {
  Look out;
  out.state.n = step_;
  out.state.name = text(name);
  out.state.dtype = text(dtype_name(value.scalar_type()));
  out.state.shape = value.sizes().vec();
  out.state.kind = kind;
  out.state.when = when;
  out.state.sharded = part.sharded;
  return out;
}

void ValueWatch::take(Look look, const at::Tensor& value, std::uint64_t first) {
  if (device_ == nullptr || value.is_cpu()) {
    const HostRead reading(recorder_, value);
    write(look, fingerprint_of(value, sketch(), first));
    return;
  }
  // On a GPU the fingerprint is queued: end_step() collects all of them at once.
  device_->take(value, first);
  asked_.push_back(std::move(look));
}

void ValueWatch::write(Look& look, const trace::Fingerprint& print) {
  const bool finite = print.non_finite == 0;
  if (look.unless_zero && finite && print.min == 0 && print.max == 0) return;
  look.state.hash = print.hash;
  // Values that are not finite have no norm and no sketch to compare; the hash still distinguishes
  // them.
  look.state.norm = finite ? print.norm : std::numeric_limits<double>::quiet_NaN();
  if (finite) look.state.sketch = print.sketch;
  recorder_.ring().state(look.state);
}

void ValueWatch::record(std::string_view name, const at::Tensor& value, trace::StateMark::Kind kind,
                        trace::StateMark::When when, TensorPart part) {
  const Timed timed(nanos_);
  take(look(name, value, kind, when, part), value, part.first);
}

}  // namespace lockstep::runtime
