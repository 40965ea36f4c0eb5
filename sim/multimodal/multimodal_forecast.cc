#include "sim/multimodal/multimodal_forecast.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/quantities.h"
#include "base/text.h"
#include "sim/multimodal/step_simulation.h"

namespace lockstep::sim {
namespace {

// Steps that are drawn to see how often ranks diverge; their data alone, which is quick: at most a
// million sequences.
constexpr std::int64_t kStepsChecked = 200, kSequencesChecked = 1'000'000;

std::string speed_of_gpus(const std::vector<Machine::Slow>& slow, std::int64_t gpus) {
  const std::string listed = slow_ranks_text(slow, gpus);
  const bool any = std::any_of(slow.begin(), slow.end(),
                               [&](const Machine::Slow& some) { return some.first < gpus; });
  if (any)
    return fmt::format("{}: GPUs are numbered by stages, those of encoders on their own last",
                       listed);
  return listed.empty() ? "all GPUs are equally fast"
                        : fmt::format("{}: all GPUs are equally fast", listed);
}

ForecastPart timed_part(std::string key, std::string what, double value, std::string rests_on) {
  return {std::move(key), std::move(what), value, std::move(rests_on)};
}

// The parts of a step's time: shares of the job's GPU time, times its seconds.
std::vector<ForecastPart> time_parts_of(const MultimodalForecast& f, const WorkShares& shares) {
  std::vector<ForecastPart> out;
  const double s = f.seconds;
  out.push_back(
      timed_part("llm", "LLM: layers, embedding, logits", s * shares.llm,
                 "as in a transformer's plan: each kernel by its FLOPs, or by its bytes"));
  for (std::size_t i = 0; i < f.plan.encoders.size(); ++i)
    out.push_back(timed_part(
        "encoder." + f.plan.encoders[i].name,
        fmt::format("{} and its projector", printable(f.plan.encoders[i].name)),
        s * shares.encoders[i], "products by all tokens of its items, attention by their squares"));
  out.push_back(timed_part("recompute", "recomputed forward of the LLM", s * shares.recompute,
                           "what the plan's recompute repeats"));
  out.push_back(timed_part("host", "GPU waits for the host", s * shares.host,
                           "the host issues each layer's kernels at the calibrated pace"));
  out.push_back(timed_part("collectives", "tensor, context, expert parallel",
                           s * shares.collectives,
                           "of the LLM; nothing hides them unless async_tensor"));
  out.push_back(timed_part("handover", "transfers between stages", s * shares.handover,
                           "activations between stages, embeddings to the LLM"));
  out.push_back(timed_part("offload", "activations to and from the host", s * shares.offload,
                           "what the computing of the same direction does not hide"));
  out.push_back(timed_part("bubble", "pipeline bubble", s * f.lost.bubble,
                           "the schedule with equal stages and equal micro-batches, task by task"));
  out.push_back(timed_part("unequal_stages", "waiting: unequal stages", s * f.lost.unequal_stages,
                           "more idle time with the stages' mean times than with equal ones"));
  out.push_back(timed_part("unequal_batches", "waiting: unequal micro-batches",
                           s * f.lost.unequal_batches,
                           "more idle time with the drawn micro-batches than with their mean"));
  out.push_back(timed_part("within_group", "waiting: uneven items in a group",
                           s * f.lost.within_group,
                           "ranks of an encoder wait for the one that has the most to encode"));
  out.push_back(timed_part("stragglers", "waiting: slower replicas", s * f.lost.stragglers,
                           "all pipelines wait for the slowest, where gradients are summed"));
  const TrainingPlan& llm = f.plan.llm.plan;
  const bool layer_by_layer = llm.sharding == Sharding::zero3 && llm.pipeline == 1;
  out.push_back(timed_part(
      "exchange", "gradients, exposed", s * shares.exchange,
      fmt::format("{}{}",
                  f.plan.overlapped_gradients
                      ? "in buckets during the last backward pass, which they slow down"
                      : "after the last backward pass; nothing hides them",
                  layer_by_layer ? "; the LLM's with its parameters layer by layer, "
                                   "while it computes, which slows down by a share"
                  : llm.scatters_each_micro_batch ? "; the LLM's are scattered in each micro-batch"
                                                  : "")));
  out.push_back(timed_part("optimizer", "optimizer, once a step", s * shares.update,
                           f.plan.offload.optimizer
                               ? "gradients to the host, its update, parameters back"
                               : "Adam and clipping by memory traffic, and a constant"));
  std::erase_if(out, [&](const ForecastPart& p) { return p.value <= 1e-12 * s; });
  return out;
}

}  // namespace

double PlaceMemory::total() const {
  double out = working + reserved;
  for (const TowerMemory& tower : towers) out += tower.total();
  return out;
}

std::vector<std::string> MultimodalForecast::basis() const {
  std::vector<std::string> out = {
      fmt::format("times: {}, {}", printable(calibration.name),
                  calibration.fitted_on.empty()
                      ? std::string("which is fitted to no measurement of its own")
                      : fmt::format("fitted to {} of language models: no encoder was measured",
                                    plural(calibration.fitted_on.size(), "measured row"))),
      fmt::format("{}, all of language models", interval_basis(calibration)),
      fmt::format("data: {}, seed {}; {} drawn",
                  plan.data.manifest.empty()
                      ? std::string("the distributions of the plan")
                      : fmt::format("{} of {}", plural(plan.data.manifest.size(), "sample"),
                                    printable(plan.data.manifest_file)),
                  plan.data.seed, plural(plan.steps, "step")),
      fmt::format("{}; no other job uses the network; loading data keeps up",
                  speed_of_gpus(calibration.cost.slow, plan.gpus)),
      ("MFU: what the towers need for tokens other than padding (a frozen tower: forward, and the "
       "input's gradient where something before it is trained), of the 16-bit peak"),
      ("an encoder computes items without padding between them, at the efficiency of the LLM's "
       "products; patch embedding and pooling take no time")};
  if (calibration.cost.network)
    out.push_back(fmt::format(
        "calls share the links of a {}: gradients and messages with all calls under way, those "
        "within tasks with calls of the same kind",
        topology_name(calibration.cost.network->kind)));
  for (const EncoderTower& tower : plan.encoders) {
    if (tower.place == EncoderPlace::every_gpu)
      out.push_back(
          fmt::format("{}: all micro-batches are encoded before the LLM's pipeline, and its "
                      "backward pass comes after it, so that its activations stay all the while",
                      printable(tower.name)));
    if (tower.place == EncoderPlace::own_gpus && coupled_groups(plan) != plan.llm.plan.data)
      out.push_back(
          fmt::format("{} serves several replicas of the LLM: they are taken to move together, "
                      "each micro-batch as slow as the slowest",
                      printable(tower.name)));
  }
  if (const std::string zero = zero_basis(
          plan.llm.plan, plan.overlapped_gradients || plan.llm.plan.overlapped_gradients);
      !zero.empty())
    out.push_back(zero);
  if (plan.llm_frozen)
    out.emplace_back("a frozen LLM takes half of its backward products, for the input's gradients");
  if (goodput)
    out.emplace_back(
        "goodput: GPUs fail independently at a constant rate; a failure loses the work since the "
        "last checkpoint (Daly 2006)");
  if (plan.offload.activations)
    out.emplace_back("offloaded activations: two micro-batches' stay on the GPU");
  return out;
}

StepLoss MultimodalForecast::largest_loss() const {
  std::vector<ForecastPart> parts = time;
  for (ForecastPart& part : parts)
    if (part.key == "optimizer" && plan.offload.optimizer) part.key = "offloaded_optimizer";
  return sim::largest_loss(parts, seconds);
}

namespace {

// Whether a change of this kind may make what is lost to a part less.
bool is_remedy(ChangeKind kind, std::string_view lost_to) {
  switch (kind) {
    case ChangeKind::reordered_data:
      return lost_to == "unequal_batches" || lost_to == "within_group";
    case ChangeKind::balanced_data:
      return lost_to == "unequal_batches" || lost_to == "stragglers";
    case ChangeKind::balanced_split:
    case ChangeKind::encoder_place:
      return lost_to == "unequal_stages";
    case ChangeKind::overlapped_gradients:
      return lost_to == "exchange";
    case ChangeKind::kept_activations:
      return lost_to == "offload";
    case ChangeKind::kept_optimizer:
      return lost_to == "offloaded_optimizer";
    case ChangeKind::llm_layout:
      return true;
    case ChangeKind::none:
    case ChangeKind::filling:
    case ChangeKind::encoder_layout:
    case ChangeKind::dummy_items:
      return false;
  }
  return false;
}

}  // namespace

std::string MultimodalForecast::reason(const std::vector<Alternative>& tried) const {
  const StepLoss loss = largest_loss();
  std::vector<TriedChange> remedies;
  for (const Alternative& one : tried)
    if (one.refused.empty() && is_remedy(one.kind, loss.key))
      remedies.push_back({one.change, one.tokens_per_second, one.fits});
  return reason_sentence(loss, {"", tokens_per_second, need.missing() == 0}, remedies);
}

namespace {

std::int64_t steps_checked(const MultimodalPlan& plan) {
  return std::clamp<std::int64_t>(kSequencesChecked / plan.llm.plan.global_batch, 8, kStepsChecked);
}

Result<CostParameters> cost_of(const MultimodalPlan& plan, const Calibration& calibration) {
  Result<CostParameters> cost = plan_cost(plan.llm, calibration.cost);
  for (const EncoderTower& tower : plan.encoders)
    if (const Status can =
            tower.layout.fp8 ? check_float8(calibration.cost, tower.dtype_at) : Status::ok();
        !can)
      return Error{fmt::format("{}: {}", printable(tower.name), can.error().message),
                   can.error().location, can.error().fix};
  return cost;
}

MultimodalForecast forecast_of(const MultimodalPlan& plan, const Calibration& calibration,
                               const CostParameters& cost, SimulatedSteps steps) {
  MultimodalForecast out;
  out.plan = plan;
  out.calibration = calibration;
  out.calibration.cost = cost;
  out.seconds = steps.seconds;
  out.shortest = steps.shortest;
  out.longest = steps.longest;
  out.range = step_range(out.seconds, cost);
  out.pipeline_seconds = steps.pipeline_seconds;
  out.encode_seconds = steps.encode_seconds;
  out.exchange_seconds = steps.exchange_seconds;
  out.update_seconds = steps.update_seconds;
  out.lost = steps.lost;
  out.places = std::move(steps.places);
  out.memory = std::move(steps.memory);
  for (std::size_t i = 0; i < out.memory.size(); ++i)
    if (out.memory[i].total() > out.memory[out.fullest].total()) out.fullest = i;
  out.need = {out.memory[out.fullest].total(),
              plan.llm.gpu_memory ? plan.llm.gpu_memory : calibration.machine.per_device};
  out.items = std::move(steps.items);
  out.padding = steps.padding;
  out.cut = steps.cut;
  out.samples_per_step = steps.samples;
  out.samples_per_second = steps.samples / out.seconds;
  out.tokens_per_second = steps.tokens / out.seconds;
  if (plan.llm.failures)
    out.goodput = goodput_of(*plan.llm.failures, static_cast<double>(plan.gpus), out.seconds);
  out.mfu = steps.flops / (cost.peak_flops * static_cast<double>(plan.gpus) * out.seconds);
  out.time = time_parts_of(out, steps.shares);
  return out;
}

// Without the check for hangs.
std::vector<Result<MultimodalForecast>> forecast_each(const std::vector<MultimodalPlan>& plans,
                                                      const Calibration& calibration) {
  std::vector<Result<CostParameters>> costs;
  costs.reserve(plans.size());
  for (const MultimodalPlan& plan : plans) costs.push_back(cost_of(plan, calibration));
  std::vector<PricedPlan> priced;
  for (std::size_t i = 0; i < plans.size(); ++i)
    if (costs[i]) priced.push_back({&plans[i], &*costs[i]});
  std::vector<Result<SimulatedSteps>> simulated = simulate_each(priced);
  auto steps = simulated.begin();
  std::vector<Result<MultimodalForecast>> out;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    if (!costs[i])
      out.emplace_back(costs[i].error());
    else if (Result<SimulatedSteps>& of_plan = *steps++; !of_plan)
      out.emplace_back(of_plan.error());
    else
      out.emplace_back(forecast_of(plans[i], calibration, *costs[i], std::move(*of_plan)));
  }
  return out;
}

Result<MultimodalForecast> forecast_times(const MultimodalPlan& plan,
                                          const Calibration& calibration) {
  return std::move(forecast_each({plan}, calibration)[0]);
}

}  // namespace

Result<MultimodalForecast> forecast_towers(const MultimodalPlan& plan,
                                           const Calibration& calibration) {
  Result<MultimodalForecast> out = forecast_times(plan, calibration);
  if (!out) return out;
  const auto dealt = std::make_shared<DealtBefore>();
  Result<std::optional<ModalityDivergence>> divergence =
      check_modalities(plan, steps_checked(plan), true, dealt.get());
  if (!divergence) return divergence.error();
  out->divergence = std::move(*divergence);
  out->dealt = dealt;
  return out;
}

Result<MultimodalForecast> forecast_towers(const MultimodalPlan& plan,
                                           const Calibration& calibration, ModalityChecks& checks) {
  Result<MultimodalForecast> out = forecast_times(plan, calibration);
  if (!out) return out;
  Result<std::optional<ModalityDivergence>> divergence = checks.check(plan, steps_checked(plan));
  if (!divergence) return divergence.error();
  out->divergence = std::move(*divergence);
  return out;
}

Result<StepPicture> draw_step(const MultimodalForecast& forecast) {
  return draw_first_step(forecast.plan, forecast.calibration.cost);
}

namespace {

struct PlanChange {
  ChangeKind kind;
  std::string what;
  MultimodalPlan plan;
  std::string refused;
};

void add_change(std::vector<PlanChange>& out, ChangeKind kind, std::string what,
                MultimodalPlan plan) {
  PlanChange change{kind, std::move(what), std::move(plan), {}};
  if (const auto problem = place_encoders(change.plan)) change.refused = problem->error.message;
  out.push_back(std::move(change));
}

// With the first encoder on its own GPUs, taken from the LLM's replicas: the division that is
// nearest to the towers' work. Empty: none divides.
std::optional<MultimodalPlan> disaggregated(const MultimodalForecast& f) {
  MultimodalPlan plan = f.plan;
  EncoderTower& tower = plan.encoders[0];
  TrainingPlan& llm = plan.llm.plan;
  if (llm.chunks > 1) return std::nullopt;
  double encoding = 0, all = 0;
  for (const ForecastPart& p : f.time) {
    if (p.key == "encoder." + tower.name) encoding += p.value;
    if (p.key.starts_with("encoder.") || p.key == "llm" || p.key == "recompute" ||
        p.key == "collectives")
      all += p.value;
  }
  const double wanted = all > 0 ? encoding / all : 0;
  std::optional<MultimodalPlan> best;
  double nearest_share = 2;  // farther off than any division is
  // Each replica of the LLM that goes leaves its GPUs to the encoder.
  for (std::int32_t data = llm.data; data >= 1; --data) {
    const std::int64_t left = plan.gpus - std::int64_t{data} * plan.replica_gpus();
    const std::int64_t per_batch = std::int64_t{data} * llm.micro_batch;
    if (left < tower.layout.tensor || llm.global_batch % per_batch != 0) continue;
    MultimodalPlan tried = plan;
    tried.llm.plan.data = data;
    tried.encoders[0].place = EncoderPlace::own_gpus;
    tried.encoders[0].gpus = left;
    tried.encoders[0].layout.pipeline = 1;
    const double share =
        std::abs(static_cast<double>(left) / static_cast<double>(plan.gpus) - wanted);
    if (share >= nearest_share || place_encoders(tried)) continue;
    nearest_share = share;
    best = std::move(tried);
  }
  return best;
}

// Other ways to deal and fill the sequences.
void add_data_changes(const MultimodalPlan& plan, std::vector<PlanChange>& out) {
  for (const Arrangement to : {Arrangement::reordered, Arrangement::balanced}) {
    if (to == plan.data.arrangement || plan.data.arrangement == Arrangement::balanced) continue;
    MultimodalPlan changed = plan;
    changed.data.arrangement = to;
    add_change(out,
               to == Arrangement::balanced ? ChangeKind::balanced_data : ChangeKind::reordered_data,
               fmt::format("data.arrange: {}", arrangement_name(to)), std::move(changed));
  }
  for (const SequenceFilling to :
       {SequenceFilling::packed, SequenceFilling::padded, SequenceFilling::ragged}) {
    if (to == plan.data.filling) continue;
    MultimodalPlan changed = plan;
    changed.data.filling = to;
    add_change(out, ChangeKind::filling, fmt::format("data.sequences: {}", filling_name(to)),
               std::move(changed));
  }
}

// A balanced split, and gradients that overlap the backward.
void add_llm_changes(const MultimodalPlan& plan, std::vector<PlanChange>& out) {
  if (plan.llm.plan.pipeline > 1 && plan.llm.plan.chunks == 1 && !plan.balanced_split) {
    MultimodalPlan changed = plan;
    changed.balanced_split = true;
    add_change(out, ChangeKind::balanced_split, "pipeline.split: balanced", std::move(changed));
  }
  if (!plan.overlapped_gradients) {
    MultimodalPlan changed = plan;
    changed.overlapped_gradients = true;
    add_change(out, ChangeKind::overlapped_gradients, "overlap_gradients: true",
               std::move(changed));
  }
}

// All encoders on `to`. GPUs of their own go to the LLM, which gets whole replicas of them. Nothing
// if the GPUs or the batch do not divide then.
std::optional<MultimodalPlan> with_encoders_on(EncoderPlace to, const MultimodalPlan& plan) {
  MultimodalPlan changed = plan;
  for (EncoderTower& tower : changed.encoders) {
    if (tower.place == EncoderPlace::own_gpus) {
      changed.llm.plan.data += static_cast<std::int32_t>(tower.gpus / plan.replica_gpus());
      tower.gpus = 0;
    }
    tower.place = to;
  }
  const std::int64_t used = std::int64_t{changed.llm.plan.data} * plan.replica_gpus();
  const std::int64_t per_batch = std::int64_t{changed.llm.plan.data} * changed.llm.plan.micro_batch;
  if (used != plan.gpus || changed.llm.plan.global_batch % per_batch != 0) return std::nullopt;
  return changed;
}

// Other places for the encoders, and other ways to divide their work.
void add_encoder_changes(const MultimodalForecast& f, std::vector<PlanChange>& out) {
  const MultimodalPlan& plan = f.plan;
  if (plan.encoders.empty()) return;
  for (const EncoderPlace to : {EncoderPlace::first_stage, EncoderPlace::every_gpu}) {
    if (to == plan.encoders[0].place) continue;
    if (std::optional<MultimodalPlan> changed = with_encoders_on(to, plan))
      add_change(out, ChangeKind::encoder_place, fmt::format("encoders on: {}", place_name(to)),
                 std::move(*changed));
  }
  if (plan.encoders[0].place != EncoderPlace::own_gpus)
    if (std::optional<MultimodalPlan> changed = disaggregated(f)) {
      std::string what = fmt::format("{} on: own_gpus, {} of {}", printable(plan.encoders[0].name),
                                     changed->encoders[0].gpus, plan.gpus);
      add_change(out, ChangeKind::encoder_place, std::move(what), std::move(*changed));
    }
  const auto is_split = [](const EncoderTower& tower) {
    return tower.layout.tensor > 1 && tower.place != EncoderPlace::own_gpus;
  };
  if (std::any_of(plan.encoders.begin(), plan.encoders.end(), is_split)) {
    MultimodalPlan changed = plan;
    for (EncoderTower& tower : changed.encoders)
      if (is_split(tower)) tower.layout.tensor = 1;
    add_change(out, ChangeKind::encoder_layout, "encoders' tensor: 1, data parallel in the group",
               std::move(changed));
  }
  if (f.divergence) {
    MultimodalPlan changed = plan;
    for (EncoderTower& tower : changed.encoders) tower.dummy = true;
    add_change(out, ChangeKind::dummy_items, "without_items: dummy", std::move(changed));
  }
}

// What is in the host's memory kept on the GPU; activations perhaps computed again instead.
void add_offload_changes(const MultimodalPlan& plan, std::vector<PlanChange>& out) {
  if (plan.offload.activations) {
    MultimodalPlan changed = plan;
    changed.offload.activations = false;
    add_change(out, ChangeKind::kept_activations, "offload.activations: false", changed);
    if (plan.llm.plan.recompute != Recompute::full) {
      changed.llm.plan.recompute = Recompute::full;
      add_change(out, ChangeKind::kept_activations,
                 "offload.activations: false, llm.recompute: full", std::move(changed));
    }
  }
  if (plan.offload.optimizer) {
    MultimodalPlan changed = plan;
    changed.offload.optimizer = false;
    add_change(out, ChangeKind::kept_optimizer, "offload.optimizer: false", std::move(changed));
  }
}

// Other layouts of the LLM, where that is where the time goes.
void add_layout_changes(const MultimodalForecast& f, std::vector<PlanChange>& out) {
  const PlanFile& llm = f.plan.llm;
  TrainingPlan planned = llm.plan;
  planned.overlapped_gradients = planned.overlapped_gradients || f.plan.overlapped_gradients;
  for (const LayoutChange& layout : layout_changes(f.largest_loss().key, llm.model, planned)) {
    // For all towers at once: add_llm_changes().
    if (!planned.overlapped_gradients && layout.plan.overlapped_gradients) continue;
    if (f.plan.balanced_split && (layout.plan.chunks > 1 || layout.plan.short_ends)) continue;
    MultimodalPlan changed = f.plan;
    changed.llm.plan = layout.plan;
    // Micro-batches are of all towers.
    const char* const of = changed.llm.plan.micro_batch == llm.plan.micro_batch ? "llm." : "";
    add_change(out, ChangeKind::llm_layout, of + layout.change, std::move(changed));
  }
}

std::vector<PlanChange> changes_of(const MultimodalForecast& f) {
  std::vector<PlanChange> out;
  add_data_changes(f.plan, out);
  add_llm_changes(f.plan, out);
  add_encoder_changes(f, out);
  add_offload_changes(f.plan, out);
  add_layout_changes(f, out);
  return out;
}

Alternative row_of(ChangeKind kind, std::string change, const MultimodalForecast& f,
                   double hang_probability) {
  Alternative out;
  out.kind = kind;
  out.change = std::move(change);
  out.seconds = f.seconds;
  out.mfu = f.mfu;
  out.lost = f.lost.total();
  out.memory_bytes = f.need.bytes;
  out.tokens_per_second = f.tokens_per_second;
  out.fits = f.need.missing() == 0;
  out.hang_probability = hang_probability;
  return out;
}

Alternative refused_row(ChangeKind kind, std::string change, std::string why) {
  Alternative out;
  out.kind = kind;
  out.change = std::move(change);
  out.refused = std::move(why);
  return out;
}

double probability_of(const std::optional<ModalityDivergence>& divergence) {
  return divergence ? divergence->probability : 0;
}

}  // namespace

std::vector<Alternative> alternatives(const MultimodalForecast& forecast) {
  const std::vector<PlanChange> changes = changes_of(forecast);
  std::vector<MultimodalPlan> possible;
  for (const PlanChange& change : changes)
    if (change.refused.empty()) possible.push_back(change.plan);
  // No change alters the batch, so as many steps are checked of each.
  const DealtBefore nothing;
  const auto checked = check_each(possible, steps_checked(forecast.plan),
                                  forecast.dealt ? *forecast.dealt : nothing);
  const auto forecasts = forecast_each(possible, forecast.calibration);
  std::vector<Alternative> out = {
      row_of(ChangeKind::none, "as planned", forecast, probability_of(forecast.divergence))};
  std::size_t next = 0;
  for (const PlanChange& change : changes) {
    if (!change.refused.empty()) {
      out.push_back(refused_row(change.kind, change.what, change.refused));
      continue;
    }
    const Result<std::optional<ModalityDivergence>>& hangs = checked[next];
    const Result<MultimodalForecast>& f = forecasts[next++];
    if (f && hangs)
      out.push_back(row_of(change.kind, change.what, *f, probability_of(*hangs)));
    else
      out.push_back(
          refused_row(change.kind, change.what, f ? hangs.error().message : f.error().message));
  }
  // Stable: on a tie, the order above.
  std::stable_sort(out.begin(), out.end(), [](const Alternative& a, const Alternative& b) {
    const auto rank = [](const Alternative& row) {
      return !row.refused.empty() ? 3 : row.hang_probability > 0 ? 2 : row.fits ? 0 : 1;
    };
    if (rank(a) != rank(b)) return rank(a) < rank(b);
    return a.tokens_per_second > b.tokens_per_second;
  });
  return out;
}

}  // namespace lockstep::sim
