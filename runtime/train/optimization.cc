#include "runtime/train/optimization.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "base/check.h"
#include "runtime/models/parameters.h"
#include "runtime/record/c10d/host_read.h"

namespace lockstep::runtime {

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const Scenario::Train& options,
                                                        const NamedTensors& parameters) {
  std::vector<at::Tensor> trained;
  for (const auto& [name, parameter] : parameters) trained.push_back(parameter);
  switch (options.optimizer) {
    case Scenario::Train::Optimizer::sgd:
      return std::make_unique<torch::optim::SGD>(
          trained, torch::optim::SGDOptions(options.lr).weight_decay(options.weight_decay));
    case Scenario::Train::Optimizer::adamw:
      return std::make_unique<torch::optim::AdamW>(
          trained, torch::optim::AdamWOptions(options.lr).weight_decay(options.weight_decay));
  }
  LOCKSTEP_CHECK(false, "an optimizer without an implementation");
}

double learning_rate(const Scenario::Train& options, std::int64_t step) {
  const auto& schedule = options.schedule;
  if (step < schedule.warmup_steps) {
    return options.lr * static_cast<double>(step + 1) / schedule.warmup_steps;
  }
  if (schedule.decay == Scenario::Train::Schedule::Decay::constant) return options.lr;
  const auto after = static_cast<double>(step - schedule.warmup_steps);
  const double length = std::max(1, options.steps - schedule.warmup_steps);
  return options.lr * (1 + std::cos(std::numbers::pi * after / length)) / 2;
}

void set_learning_rate(torch::optim::Optimizer& optimizer, double rate) {
  for (auto& group : optimizer.param_groups()) group.options().set_lr(rate);
}

std::vector<std::pair<std::string, double>> clip_gradients(
    const Scenario::Train::Clip& limits, const NamedTensors& parameters, Recorder& recorder,
    const std::function<double(double)>& whole) {
  constexpr double kTiny = 1e-6;  // as in clip_grad_norm_: avoids dividing by a norm of 0
  const at::NoGradGuard no_grad;
  std::vector<std::pair<std::string, double>> factors;
  const auto clip = [&](const char* factor_name, Branch branch,
                        const std::optional<double>& limit) {
    if (!limit) return;
    std::vector<at::Tensor> group, norms;
    double squared = 0;
    for (const auto& [name, parameter] : parameters) {
      if (branch_of(name) != branch || !parameter.grad().defined()) continue;
      group.push_back(parameter.grad());
      norms.push_back(at::linalg_vector_norm(group.back(), 2));
    }
    if (!norms.empty()) {
      const HostRead reading(recorder, norms.front());
      for (const at::Tensor& each : norms) {
        const auto norm = each.item<double>();
        squared += norm * norm;
      }
    }
    // `whole` is called even by a rank without gradients of the group: it may be collective.
    const double factor = *limit / (std::sqrt(whole ? whole(squared) : squared) + kTiny);
    factors.emplace_back(factor_name, std::min(factor, 1.0));
    if (factor >= 1) return;  // also for NaN, which stays and shows in the loss
    for (at::Tensor& gradient : group) gradient.mul_(factor);
  };
  clip("clip/image", Branch::image, limits.image);
  clip("clip/text", Branch::text, limits.text);
  clip("clip/fusion", Branch::fusion, limits.fusion);
  return factors;
}

}  // namespace lockstep::runtime
