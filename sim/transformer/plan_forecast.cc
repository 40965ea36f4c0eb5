#include "sim/transformer/plan_forecast.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/quantities.h"
#include "base/text.h"
#include "sim/forecast/goodput.h"

namespace lockstep::sim {
namespace {

std::string tensor_basis(const TrainingPlan& plan) {
  return fmt::format(
      "two all-reduces per layer and direction, or the same bytes in all-gathers and "
      "reduce-scatters; {}",
      plan.overlapped_tensor
          ? "they overlap the matrix products, which slow down by a share of their time"
          : "nothing hides them");
}

std::string data_basis(const TrainingPlan& plan) {
  const bool layer_by_layer = plan.sharding == Sharding::zero3 && plan.pipeline == 1;
  if (plan.scatters_each_micro_batch)
    return fmt::format(
        "parameters gathered once a step, gradients scattered in the backward pass of each "
        "micro-batch{}",
        plan.overlapped_gradients ? ", which slows down by a share of it; what is left over"
                                  : "; nothing hides them");
  if (plan.overlapped_gradients && !layer_by_layer)
    return plan.sharding == Sharding::none
               ? "gradients in buckets during the last micro-batch's backward pass, which slows "
                 "down by a share of it; what is left over"
               : "parameters in buckets during the first micro-batch's forward pass, gradients "
                 "during the last one's backward pass, which slow down by a share of it; what is "
                 "left over";
  if (plan.sharding != Sharding::zero3)
    return fmt::format(
        "gradients in {}, all-reduced after the last backward pass; nothing hides them",
        plan.short_gradients ? "bfloat16" : "float32");
  if (plan.pipeline > 1)
    return "parameters gathered and gradients scattered once a step; nothing hides them";
  return "parameters gathered and gradients scattered layer by layer during the computing, which "
         "slows down by a share of them";
}

// PyTorch's own context parallelism overlaps by itself, whatever the plan says of it.
std::string context_basis(const TrainingPlan& plan) {
  if (plan.plain_kernels)
    return fmt::format(
        "as PyTorch's: keys and values gathered in each layer and direction, their gradients sent "
        "round in float32; {}",
        plan.compiled ? "compiled, each call is waited for where it is issued"
                      : "during the attention");
  return plan.overlapped_context
             ? "keys and values gathered in each layer and direction, during the attention"
             : "keys and values gathered in each layer and direction; nothing hides them";
}

std::string recompute_basis(const TrainingPlan& plan, const Transformer& model) {
  if (plan.recompute == Recompute::full)
    return "the layers' forward once more in each backward pass";
  return model.gated ? "every second product and the element-wise operations once more"
                     : "the attention's forward once more in each backward pass";
}

std::string optimizer_basis(const CostParameters& cost) {
  return fmt::format(
      "Adam and clipping: {} bytes of memory traffic a parameter that the GPU updates",
      number_text(cost.optimizer_traffic));
}

// The parts of a step's time, each with the sentence that says what it is based on. The keys are
// those of JSON and CSV.
std::vector<ForecastPart> time_parts(const PlanForecast& f) {
  const StepParts& parts = f.step.parts;
  const TrainingPlan& plan = f.plan.plan;
  const CostParameters& cost = f.calibration.cost;
  std::vector<ForecastPart> out = {
      {"layers", "layers, forward and backward", parts.layers,
       fmt::format(
           "each kernel by its FLOPs at the calibrated efficiency, or by its bytes{}",
           f.plan.model.diffusion
               ? "; those of a diffusion transformer's modulation and norms are fitted to a "
                 "step of FLUX.1 in MLPerf Training 5.1"
               : "")},
      {"recompute", "recomputed forward", parts.recompute, recompute_basis(plan, f.plan.model)},
      {"logits", "embedding, logits and loss", parts.logits,
       fmt::format("the product by its FLOPs, the loss by {} bytes a logit",
                   number_text(cost.logit_traffic))},
      {"host", "GPU waits for the host", parts.host,
       "the host issues each layer's kernels at the calibrated pace"},
      {"tensor_parallel", "tensor-parallel collectives", parts.tensor, tensor_basis(plan)},
      {"context_parallel", "context-parallel collectives", parts.context, context_basis(plan)},
      {"expert_parallel", "expert-parallel collectives", parts.expert,
       fmt::format(
           "tokens to their experts' ranks and back, in each layer and direction{}; nothing "
           "hides that",
           plan.expert_skew == 1 ? std::string("; all experts get equally many")
                                 : fmt::format("; the fullest rank gets {} times the mean",
                                               number_text(plan.expert_skew)))},
      {"data_parallel", "data-parallel, exposed", parts.data, data_basis(plan)},
      {"pipeline_transfer", "transfers between stages", parts.handover,
       plan.overlapped_pipeline
           ? "sends overlap computing, which slows down by a share of them"
           : "each send occupies both stages, as Megatron's blocking sends do"},
      {"pipeline_bubble", "pipeline bubble", parts.bubble,
       "the step is simulated task by task and message by message; the mean time that a stage "
       "waits for others"},
      {"optimizer", "optimizer", parts.optimizer, optimizer_basis(cost)},
      {"overhead", "once a step", parts.overhead, "a constant of the calibration"},
  };
  std::erase_if(out, [](const ForecastPart& part) { return part.value == 0; });
  return out;
}

// The sentence that says over how many ranks a state is divided.
std::string divided(bool is, const TrainingPlan& plan) {
  if (!is) return ", whole on every data-parallel rank";
  std::string out = fmt::format(", divided by {} ranks", plan.replicas());
  if (plan.expert > 1) out += fmt::format(", experts' by {}", plan.expert_replicas());
  return out;
}

std::string activations_basis(const Transformer& model, const TrainingPlan& plan) {
  const char* kept = plan.recompute == Recompute::full        ? "only each layer's input"
                     : plan.recompute == Recompute::selective ? "what selective recompute leaves"
                                                              : "all that the backward pass needs";
  return fmt::format(
      "{} of each micro-batch in flight ({})", kept,
      model.gated ? "gated layers: what each operation keeps" : "arXiv 2205.05198, table 2");
}

// The parts of the fullest stage's memory, in the same form.
std::vector<ForecastPart> memory_parts(const PlanForecast& f) {
  const StepMemory& use = f.step.memory;
  const TrainingPlan& plan = f.plan.plan;
  const Sharding zero = plan.sharding;
  const bool fsdp = zero == Sharding::zero3;
  std::vector<ForecastPart> out = {
      {"parameters", "parameters", use.state.parameters,
       (fsdp ? "4 bytes a parameter" : "2 bytes a parameter") + divided(fsdp, plan)},
      {"gradients", "gradients", use.state.gradients,
       (fsdp || !plan.short_gradients ? "4 bytes a parameter" : "2 bytes a parameter") +
           divided(zero >= Sharding::zero2, plan)},
      {"optimizer", "optimizer's state", use.state.optimizer,
       (fsdp ? "Adam: 8 bytes a parameter" : "Adam and float32 weights: 12 bytes a parameter") +
           divided(zero >= Sharding::zero1, plan)},
      {"gathered", "gathered parameters", use.held.unsharded,
       plan.pipeline > 1
           ? "16-bit weights, and float32 gradients of the pieces whose backward passes "
             "have begun"
           : "the running layer and the tables in 16 bits, and buffers for gathering"},
      {"activations", "activations", use.held.activations, activations_basis(f.plan.model, plan)},
      {"messages", "messages of the stages", use.held.messages,
       "PyTorch's pipelining: a buffer for each micro-batch, and what was sent until its backward"},
      {use.of_logits ? "logits" : "working",
       use.of_logits ? "logits and their gradient" : "the layer that is computed", use.working,
       use.of_logits ? "14 bytes a word and token of a micro-batch: 16 bits, and three in float32"
                     : "all that a layer makes for its backward pass"},
      {"reserved", "reserved", f.calibration.cost.reserved_memory,
       "context, libraries and fragmentation: a constant of the calibration"},
  };
  std::erase_if(out, [](const ForecastPart& part) { return part.value == 0; });
  return out;
}

std::string calibration_basis(const Calibration& calibration) {
  const std::size_t rows = calibration.fitted_on.size();
  return fmt::format("times: {}, {}", printable(calibration.name),
                     rows == 0 ? "which is fitted to no measurement of its own"
                               : fmt::format("fitted to {}", plural(rows, "measured row")));
}

}  // namespace

double MemoryNeed::missing() const {
  return gpu ? std::max(0.0, bytes - static_cast<double>(gpu->value)) : 0;
}

StepRange step_range(double seconds, const CostParameters& cost) {
  return {seconds / (1 + cost.spread), seconds * (1 + cost.spread)};
}

namespace {

std::string slow_basis(const CostParameters& cost, std::int64_t gpus) {
  const auto in_job = [&](const Machine::Slow& some) { return some.first < gpus; };
  const std::string equally =
      "all GPUs are equally fast; no other job uses the network; no stragglers";
  if (cost.slow.empty()) return equally;
  const std::string which = slow_ranks_text(cost.slow, gpus);
  if (std::none_of(cost.slow.begin(), cost.slow.end(), in_job))
    return fmt::format("{}: {}", which, equally);
  return fmt::format(
      "{}; times are of the most frequent kind of replica, where waiting for slower "
      "ones counts as data-parallel, exposed",
      which);
}

}  // namespace

std::vector<std::string> PlanForecast::basis() const {
  const Transformer& model = plan.model;
  const TrainingPlan& p = plan.plan;
  std::vector<std::string> out = {
      calibration_basis(calibration), interval_basis(calibration),
      slow_basis(calibration.cost, static_cast<std::int64_t>(gpus())),
      fmt::format("MFU: 3 x the forward's matrix products{}, of {} TFLOP/s (16 bits)",
                  model.causal ? ", attention counted as far as the mask leaves it" : "",
                  number_text(calibration.cost.peak_flops * 1e-12))};
  const std::int64_t pieces = p.pieces();
  const bool short_ends = p.short_ends && pieces > 1;
  const std::int64_t dealt = model.layers + (short_ends ? 2 : 0);
  // Each sentence below appears only if it affects this plan.
  if (calibration.cost.network)
    out.push_back(
        fmt::format("calls share the links of a {}: gradients and messages that overlap tasks as "
                    "they come, those within tasks with all of the same kind",
                    topology_name(calibration.cost.network->kind)));
  if (dealt % pieces != 0)
    out.push_back(
        fmt::format("{} layers{} do not divide by {} pieces: each counts as {} layers",
                    model.layers, short_ends ? ", the embedding and the logits" : "", pieces,
                    number_text(static_cast<double>(dealt) / static_cast<double>(pieces))));
  if (p.pipeline > 1)
    out.emplace_back(short_ends
                         ? "every stage's memory is counted with the parameters of the fullest one"
                         : "every stage's memory is counted with an embedding table, as the first "
                           "and the last have one");
  if (p.pipeline > 1 && splits_backward(p.schedule))
    out.emplace_back(
        "no measured step used a zero-bubble schedule: its order is exact, its times were not "
        "compared");
  if (goodput)
    out.emplace_back(
        "goodput: GPUs fail independently at a constant rate; a failure loses the work since the "
        "last checkpoint (Daly 2006)");
  if (std::string zero = zero_basis(p, p.overlapped_gradients); !zero.empty())
    out.push_back(std::move(zero));
  return out;
}

std::string zero_basis(const TrainingPlan& plan, bool overlapped) {
  const bool zero2 = plan.sharding == Sharding::zero2;
  if (plan.sharding != Sharding::zero1 && !zero2) return {};
  if (plan.scatters_each_micro_batch)
    return "no measured step scattered the gradients of each micro-batch (ZeRO-2)";
  // Steps with ZeRO-1 and overlap were measured.
  if (overlapped)
    return zero2 ? "ZeRO-2 exchanges gradients once a step, as ZeRO-1 does, though it keeps a part "
                   "of them only: no measured step used it"
                 : "";
  return fmt::format(
      "no measured step used {} without overlap: it changes the memory and the optimizer's time, "
      "but not the exchange",
      zero2 ? "ZeRO-2" : "ZeRO-1");
}

std::string interval_basis(const Calibration& calibration) {
  return fmt::format(
      "the interval: four of five measured rows that the calibration was not fitted to were within "
      "{} of their prediction",
      percent(calibration.cost.spread));
}

PlanForecast::Goodput goodput_of(const PlanFile::Failures& failures, double gpus,
                                 double step_seconds) {
  const FailureModel model{failures.gpu_mtbf_hours * 3600 / gpus, failures.checkpoint.seconds(),
                           failures.restart.seconds()};
  PlanForecast::Goodput out;
  out.mtbf = model.mtbf;
  // Less than a step is no progress that a checkpoint could keep.
  out.best = std::max(best_interval(model), step_seconds);
  out.young = young_interval(model);
  out.daly = daly_interval(model);
  out.interval = failures.every ? std::max(failures.every->seconds(), step_seconds) : out.best;
  out.share = goodput(model, out.interval);
  return out;
}

Result<PlanForecast> forecast_plan(const PlanFile& plan, const Calibration& calibration) {
  const Result<CostParameters> cost = plan_cost(plan, calibration.cost);
  if (!cost) return cost.error();
  const Result<StepPrediction> step = predict_step(plan.model, plan.plan, *cost);
  if (!step) return step.error();
  PlanForecast out;
  out.plan = plan;
  out.calibration = calibration;
  // With the plan's gpus_per_node, which overrides the calibration's.
  out.calibration.cost = *cost;
  out.step = *step;
  out.range = step_range(step->seconds, *cost);
  out.need = {step->memory_bytes,
              plan.gpu_memory ? plan.gpu_memory : calibration.machine.per_device};
  if (plan.failures) out.goodput = goodput_of(*plan.failures, out.gpus(), step->seconds);
  out.samples_per_second = static_cast<double>(plan.plan.global_batch) / step->seconds;
  out.tokens_per_second = out.samples_per_second * static_cast<double>(plan.plan.sequence);
  // The FLOPs that all GPUs could do in the step at their 16-bit peak.
  const double peak = cost->peak_flops * out.gpus() * step->seconds;
  out.mfu = model_flops(plan.model, plan.plan) / peak;
  out.hfu = hardware_flops(plan.model, plan.plan) / peak;
  out.bubble_share = step->bubble_share;
  out.time = time_parts(out);
  out.memory = memory_parts(out);
  return out;
}

Result<StepPicture> draw_step(const PlanForecast& forecast) {
  const Result<SimulatedStep> step = simulate_step(forecast.plan.model, forecast.plan.plan,
                                                   forecast.calibration.cost, /*for_path=*/true);
  if (!step) return step.error();
  std::vector<std::string> names;
  names.reserve(static_cast<std::size_t>(forecast.plan.plan.pipeline));
  for (std::int32_t stage = 0; stage < forecast.plan.plan.pipeline; ++stage)
    names.push_back(fmt::format("stage {}", stage));
  return draw_step(step->program, step->result, names);
}

}  // namespace lockstep::sim
