#include "sim/transformer/step_reason.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "base/quantities.h"
#include "base/text.h"

namespace lockstep::sim {
namespace {

// A change that gives less than half a per cent is none: so much is in how a schedule falls.
constexpr double kWorthIt = 1.005;

struct LossWords {
  std::string_view key, to;
};

// Every part of a step but those that compute what the model needs. The keys of transformers, then
// those of several towers.
constexpr std::array<LossWords, 22> kLosses = {{
    {"recompute", "computing the forward pass again"},
    {"host", "waiting for the host, which issues kernels more slowly than they run"},
    {"tensor_parallel", "tensor-parallel collectives"},
    {"context_parallel", "context-parallel collectives"},
    {"expert_parallel", "expert-parallel collectives"},
    {"data_parallel", "gradients and parameters that data-parallel ranks exchange"},
    {"pipeline_transfer", "transfers between pipeline stages"},
    {"pipeline_bubble", "the pipeline's bubble"},
    {"optimizer", "the optimizer's memory traffic"},
    {"overhead", "what a step does once, whatever its size"},
    {"slow", "waiting for slow ranks"},
    {"expert_skew", "experts that get more tokens than others"},
    {"collectives", "collectives of tensor, context or expert parallelism"},
    {"handover", "transfers between stages and towers"},
    {"offload", "activations that move to and from the host"},
    {"offloaded_optimizer", "the optimizer's state in the host's memory"},
    {"bubble", "the pipeline's bubble"},
    {"unequal_stages", "stages of unequal work"},
    {"unequal_batches", "micro-batches of unequal work"},
    {"within_group", "ranks of a group that wait for the one with the largest items"},
    {"stragglers", "replicas that wait for the one with the most work"},
    {"exchange", "gradients and parameters that data-parallel ranks exchange"},
}};

// Adds layouts that differ from one in one respect.
class LayoutChanges {
 public:
  LayoutChanges(const Transformer& model, const TrainingPlan& plan) : model_(model), plan_(plan) {}

  void for_bubble() {
    halve("pipeline.stages", &TrainingPlan::pipeline);
    if (plan_.pipeline == 1) return;
    TrainingPlan changed = plan_;
    if (!splits_backward(plan_.schedule) && plan_.schedule != PipelineSchedule::interleaved) {
      changed.schedule = PipelineSchedule::interleaved;
      changed.chunks = 2;
      if (plan_.micro_batches() % plan_.pipeline == 0)
        add("pipeline.schedule: interleaved", changed);
      changed.schedule = PipelineSchedule::zb_h1;
      changed.chunks = 1;
      add("pipeline.schedule: zb-h1", changed);
    }
    if (!plan_.short_ends) {
      changed = plan_;
      changed.short_ends = true;
      add("pipeline.split: short_ends", changed);
    }
    halve_micro_batch();
  }

  void for_tensor() {
    if (plan_.tensor == 1) return;
    halve("tensor", &TrainingPlan::tensor);
    set("async_tensor: true", &TrainingPlan::overlapped_tensor);
  }

  void for_context() {
    if (plan_.context == 1) return;
    halve("context", &TrainingPlan::context);
    if (!plan_.plain_kernels) set("overlap.context: true", &TrainingPlan::overlapped_context);
  }

  void for_experts() { halve("expert", &TrainingPlan::expert); }

  // Shorter gradients are other numbers, so that they come last.
  void for_gradients() {
    if (plan_.overlapped_gradients)
      set("gradient_dtype: bfloat16", &TrainingPlan::short_gradients);
    else
      set("overlap.gradients: true", &TrainingPlan::overlapped_gradients);
    if (plan_.sharding != Sharding::zero3) return;
    TrainingPlan changed = plan_;
    changed.sharding = Sharding::zero1;
    add("zero: 1", changed);
  }

  void for_transfers() {
    if (plan_.pipeline == 1) return;
    set("overlap.pipeline: true", &TrainingPlan::overlapped_pipeline);
    halve("pipeline.stages", &TrainingPlan::pipeline);
  }

  void for_recompute() {
    for (const Recompute less : {Recompute::none, Recompute::selective}) {
      if (less >= plan_.recompute) continue;
      TrainingPlan changed = plan_;
      changed.recompute = less;
      add(fmt::format("recompute: {}", kRecomputeNames[static_cast<std::size_t>(less)]), changed);
    }
  }

  // Fewer and longer kernels.
  void for_host() {
    set("compile: true", &TrainingPlan::compiled);
    halve("tensor", &TrainingPlan::tensor);
    TrainingPlan changed = plan_;
    changed.micro_batch *= 2;
    add(fmt::format("micro_batch: {}", changed.micro_batch), changed);
  }

  void for_optimizer() {
    if (plan_.sharding != Sharding::none || plan_.replicas() == 1) return;
    TrainingPlan changed = plan_;
    changed.sharding = Sharding::zero1;
    add("zero: 1", changed);
  }

  std::vector<LayoutChange> take() { return std::move(out_); }

 private:
  void add(std::string change, const TrainingPlan& plan) {
    if (!workload_problem(model_, plan)) out_.push_back({std::move(change), plan});
  }

  void set(std::string change, bool TrainingPlan::*key) {
    if (plan_.*key) return;
    TrainingPlan changed = plan_;
    changed.*key = true;
    add(std::move(change), changed);
  }

  // Half of it; the ranks stay as many, so the batch is dealt to more of them. (Experts are on
  // ranks that the batch is dealt to anyhow.)
  void halve(std::string_view key, std::int32_t TrainingPlan::*part) {
    if (plan_.*part % 2 != 0) return;
    TrainingPlan changed = plan_;
    changed.*part /= 2;
    if (part != &TrainingPlan::expert) changed.data *= 2;
    if (part == &TrainingPlan::expert)
      changed.expert_skew = std::min(changed.expert_skew, static_cast<double>(changed.expert));
    add(fmt::format("{}: {}", key, changed.*part), changed);
  }

  void halve_micro_batch() {
    if (plan_.micro_batch % 2 != 0) return;
    TrainingPlan changed = plan_;
    changed.micro_batch /= 2;
    add(fmt::format("micro_batch: {}", changed.micro_batch), changed);
  }

  const Transformer& model_;
  const TrainingPlan& plan_;
  std::vector<LayoutChange> out_;
};

// What helps, or that nothing of what was tried does; empty: nothing was tried.
std::string advice_of(const TriedChange& planned, const std::vector<TriedChange>& tried) {
  const TriedChange *best = nullptr, *too_large = nullptr;
  for (const TriedChange& one : tried) {
    if (one.tokens_per_second <= kWorthIt * planned.tokens_per_second) continue;
    const TriedChange*& of_its_kind = one.fits || !planned.fits ? best : too_large;
    if (!of_its_kind || one.tokens_per_second > of_its_kind->tokens_per_second) of_its_kind = &one;
  }
  const auto gain = [&](const TriedChange& one) {
    const double times = one.tokens_per_second / planned.tokens_per_second;
    return times < 2 ? fmt::format("{} more tokens/s", percent(times - 1))
                     : fmt::format("{} times the tokens/s", number_text(times));
  };
  if (best) return fmt::format("; {} gives {}", best->change, gain(*best));
  if (too_large)
    return fmt::format("; {} would give {}, but does not fit", too_large->change, gain(*too_large));
  if (tried.empty()) return {};
  std::vector<std::string> names;
  names.reserve(tried.size());
  for (const TriedChange& one : tried) names.push_back(one.change);
  return fmt::format("; {} {} no more tokens/s", join_and(names),
                     names.size() == 1 ? "gives" : "give");
}

}  // namespace

StepLoss largest_loss(const std::vector<ForecastPart>& time, double seconds) {
  StepLoss most;
  for (const ForecastPart& part : time) {
    const auto* const words = std::find_if(
        kLosses.begin(), kLosses.end(), [&](const LossWords& one) { return one.key == part.key; });
    if (words == kLosses.end() || part.value <= most.share * seconds) continue;
    most = {part.key, std::string(words->to), part.value / seconds};
  }
  return most;
}

std::vector<LayoutChange> layout_changes(std::string_view lost_to, const Transformer& model,
                                         const TrainingPlan& plan) {
  LayoutChanges out(model, plan);
  if (lost_to == "pipeline_bubble" || lost_to == "bubble") out.for_bubble();
  if (lost_to == "tensor_parallel" || lost_to == "collectives") out.for_tensor();
  if (lost_to == "context_parallel" || lost_to == "collectives") out.for_context();
  if (lost_to == "expert_parallel" || lost_to == "collectives") out.for_experts();
  if (lost_to == "data_parallel" || lost_to == "exchange") out.for_gradients();
  if (lost_to == "pipeline_transfer" || lost_to == "handover") out.for_transfers();
  if (lost_to == "recompute") out.for_recompute();
  if (lost_to == "host") out.for_host();
  if (lost_to == "optimizer") out.for_optimizer();
  return out.take();
}

std::string reason_sentence(const StepLoss& loss, const TriedChange& planned,
                            const std::vector<TriedChange>& tried) {
  // Less limits nothing: there is always a largest part.
  constexpr double kLimit = 0.05, kNothing = 0.01;
  if (loss.share < kNothing) return "nothing but computing takes more than a hundredth of the time";
  const std::string advice = advice_of(planned, tried);
  if (loss.share < kLimit)
    return fmt::format(
        "computing takes the time: nothing else takes more than {} of the GPUs' (that is {}){}",
        percent(loss.share), loss.to, advice);
  return fmt::format("beside computing, most time goes to {} ({} of the GPUs'){}", loss.to,
                     percent(loss.share), advice);
}

std::string reason_of(const PlanForecast& f) {
  // Where ranks wait for slow or full ones, the parts count it as something else: so they are
  // those of the same step without such ranks.
  std::vector<ForecastPart> parts = f.time, waits;
  double seconds = f.step.seconds;
  PlanFile plan = f.plan;
  Calibration calibration = f.calibration;
  const auto without = [&](std::string key) {
    const Result<PlanForecast> other = forecast_plan(plan, calibration);
    if (!other) return;
    parts = other->time;
    waits.push_back({std::move(key), {}, std::max(0.0, seconds - other->step.seconds), {}});
    seconds = other->step.seconds;
  };
  if (!calibration.cost.slow.empty()) {
    calibration.cost.slow.clear();
    without("slow");
  }
  if (plan.plan.expert_skew > 1) {
    plan.plan.expert_skew = 1;
    without("expert_skew");
  }
  parts.insert(parts.end(), waits.begin(), waits.end());
  const StepLoss loss = largest_loss(parts, f.step.seconds);
  std::vector<TriedChange> tried;
  for (LayoutChange& change : layout_changes(loss.key, f.plan.model, f.plan.plan)) {
    PlanFile changed = f.plan;
    changed.plan = change.plan;
    if (const Result<PlanForecast> other = forecast_plan(changed, f.calibration))
      tried.push_back(
          {std::move(change.change), other->tokens_per_second, other->need.missing() == 0});
  }
  return reason_sentence(loss, {"", f.tokens_per_second, f.need.missing() == 0}, tried);
}

}  // namespace lockstep::sim
