#include "runtime/train/training_state.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

namespace lockstep {
namespace {

// The optimizer's tensors of one parameter; made first where the optimizer has not used it yet.
struct Moments {
  NamedTensors tensors;
  std::function<std::int64_t()> step;
  std::function<void(std::int64_t)> set_step;
};

Moments moments_of(torch::optim::Optimizer& optimizer, const at::Tensor& parameter, bool make) {
  Moments out;
  auto& states = optimizer.state();
  void* const key = parameter.unsafeGetTensorImpl();
  const bool is_adam = dynamic_cast<torch::optim::AdamW*>(&optimizer) != nullptr;
  if (!is_adam) return out;  // SGD without momentum has no state
  if (states.find(key) == states.end()) {
    if (!make) return out;
    auto fresh = std::make_unique<torch::optim::AdamWParamState>();
    fresh->step(0);
    fresh->exp_avg(at::zeros_like(parameter));
    fresh->exp_avg_sq(at::zeros_like(parameter));
    states[key] = std::move(fresh);
  }
  auto& state = static_cast<torch::optim::AdamWParamState&>(*states[key]);
  out.tensors = {{"exp_avg", state.exp_avg()}, {"exp_avg_sq", state.exp_avg_sq()}};
  out.step = [&state] { return state.step(); };
  out.set_step = [&state](std::int64_t n) { state.step(n); };
  return out;
}

at::Tensor random_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void set_random_state(const at::Tensor& state) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

// What is the same in both layouts.
void add_rest(const TrainingState& state, NamedTensors& all) {
  all.emplace_back("loss_scale", state.scaler.scale_state().contiguous());
  all.emplace_back("loss_scale_growth", state.scaler.growth_state().contiguous());
  all.emplace_back("random", random_state());
}

// Copies what a file holds into the state, and remembers what does not fit.
class Restore {
 public:
  Restore(TrainingState& state, Strategy& strategy, const TensorsByName& stored, bool is_whole)
      : state_(state), strategy_(strategy), stored_(stored), is_whole_(is_whole) {}

  // The first name that the file lacks or holds in another shape; empty: it fits.
  std::string run() {
    const std::string buffer = is_whole_ ? "" : "buffer.";
    for (auto& [name, tensor] : state_.optimised) {
      tensor.copy_(value_of(name, tensor, is_whole_ ? "" : "parameter.", ""));
      restore_moments(name, tensor);
    }
    for (auto& [name, tensor] : state_.buffers) tensor.copy_(find(buffer + name, tensor));
    for (const auto& [name, to] : {std::pair{"loss_scale", state_.scaler.scale_state()},
                                   std::pair{"loss_scale_growth", state_.scaler.growth_state()}}) {
      to.copy_(find(name, to));
    }
    const auto random = stored_.find("random");
    if (random == stored_.end()) wrong_ = "random";
    if (wrong_.empty()) set_random_state(random->second);
    return wrong_;
  }

 private:
  // Zeros for what does not fit: the state is given up then.
  at::Tensor find(const std::string& name, const at::Tensor& like) {
    const auto found = stored_.find(name);
    if (found != stored_.end() && found->second.sizes() == like.sizes()) return found->second;
    if (wrong_.empty()) wrong_ = name;
    return at::zeros(like.sizes(), like.options());
  }

  at::Tensor value_of(const std::string& name, const at::Tensor& optimised,
                      const std::string& before, const std::string& behind) {
    if (!is_whole_) return find(before + name + behind, optimised);
    return strategy_.part(name, optimised,
                          [&](const std::string& parameter, const at::Tensor& like) {
                            return find(before + parameter + behind, like);
                          });
  }

  // The most steps of the parameters that `name` holds; nothing where none had a gradient until
  // then. Parameters that had none have moments of 0 in the shard that they share with others.
  std::optional<std::int64_t> steps_of(const std::string& name, const at::Tensor& optimised) {
    std::optional<std::int64_t> most;
    const auto look = [&](const std::string& parameter) {
      const auto found = stored_.find("optimizer." + parameter + ".step");
      if (found == stored_.end() || found->second.numel() != 1) return;
      most = std::max(most.value_or(0), found->second.item<std::int64_t>());
    };
    if (!is_whole_) {
      look(name);
      return most;
    }
    strategy_.part(name, optimised, [&](const std::string& parameter, const at::Tensor& like) {
      look(parameter);
      return at::zeros(like.sizes(), like.options());
    });
    return most;
  }

  void restore_moments(const std::string& name, const at::Tensor& optimised) {
    const auto steps = steps_of(name, optimised);
    if (!steps) return;
    const Moments moments = moments_of(state_.optimizer, optimised, true);
    for (const auto& [kind, value] : moments.tensors) {
      const std::string end = "." + kind;
      if (!is_whole_) {
        value.copy_(find("optimizer." + name + end, value));
        continue;
      }
      value.copy_(strategy_.part(
          name, optimised, [&](const std::string& parameter, const at::Tensor& like) {
            const std::string key = "optimizer." + parameter;
            return stored_.contains(key + ".step") ? find(key + end, like)
                                                   : at::zeros(like.sizes(), like.options());
          }));
    }
    if (moments.set_step) moments.set_step(*steps);
  }

  TrainingState& state_;
  Strategy& strategy_;
  const TensorsByName& stored_;
  bool is_whole_;
  std::string wrong_;
};

}  // namespace

NamedTensors tensors_of_rank(const TrainingState& state) {
  NamedTensors all;
  for (const auto& [name, tensor] : state.optimised) {
    all.emplace_back("parameter." + name, tensor.detach().contiguous());
    const Moments moments = moments_of(state.optimizer, tensor, false);
    for (const auto& [kind, value] : moments.tensors) {
      all.emplace_back("optimizer." + name + "." + kind, value.contiguous());
    }
    if (moments.step) {
      all.emplace_back("optimizer." + name + ".step", at::full({1}, moments.step(), at::kLong));
    }
  }
  for (const auto& [name, tensor] : state.buffers) {
    all.emplace_back("buffer." + name, tensor.contiguous());
  }
  add_rest(state, all);
  return all;
}

NamedTensors whole_tensors(const TrainingState& state, Strategy& strategy, bool keep) {
  NamedTensors all;
  for (const auto& [name, tensor] : state.optimised) {
    NamedTensors parameters = strategy.whole(name, tensor.detach());
    const Moments moments = moments_of(state.optimizer, tensor, false);
    for (const auto& [kind, value] : moments.tensors) {
      for (const auto& [parameter, part] : strategy.whole(name, value)) {
        if (keep) all.emplace_back("optimizer." + parameter + "." + kind, part.contiguous());
      }
    }
    for (const auto& [parameter, value] : parameters) {
      if (!keep) continue;
      all.emplace_back(parameter, value.contiguous());
      if (!moments.step) continue;
      all.emplace_back("optimizer." + parameter + ".step",
                       at::full({1}, moments.step(), at::kLong));
    }
  }
  if (!keep) return {};
  for (const auto& [name, tensor] : state.buffers) all.emplace_back(name, tensor.contiguous());
  add_rest(state, all);
  return all;
}

std::string restore(TrainingState& state, Strategy& strategy, const TensorsByName& stored,
                    bool is_whole) {
  return Restore(state, strategy, stored, is_whole).run();
}

}  // namespace lockstep
