#include "sim/multimodal/multimodal_forecast.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
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
  out.push_back(timed_part("exchange", "gradients, exposed", s * shares.exchange,
                           f.plan.overlapped_gradients
                               ? "in buckets during the last backward pass, which they slow down"
                               : "after the last backward pass; nothing hides them"));
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
      "all GPUs are equally fast; no other job uses the network; loading data keeps up",
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
          plan.llm.plan.sharding, plan.overlapped_gradients || plan.llm.plan.overlapped_gradients);
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

std::string MultimodalForecast::reason(const std::vector<Alternative>& tried) const {
  struct Loss {
    double share;
    std::string to, remedy, effect;
    std::vector<ChangeKind> changes;  // those that are the remedy; empty: none of them
  };
  const double exchange = exchange_seconds / seconds;
  const auto share_of = [&](std::string_view key) {
    const auto part = std::find_if(time.begin(), time.end(),
                                   [&](const ForecastPart& one) { return one.key == key; });
    return part == time.end() ? 0 : part->value / seconds;
  };
  std::vector<Loss> losses = {
      {lost.bubble,
       "the pipeline's bubble",
       "more micro-batches or fewer stages",
       "make it smaller",
       {}},
      {lost.unequal_stages,
       "stages of unequal work",
       "pipeline.split: balanced, or another place for the encoders,",
       "evens them out",
       {ChangeKind::balanced_split, ChangeKind::encoder_place}},
      {lost.unequal_batches,
       "micro-batches of unequal work",
       "data.arrange: reordered or balanced",
       "evens them out",
       {ChangeKind::reordered_data, ChangeKind::balanced_data}},
      {lost.stragglers,
       "replicas that wait for the one with the most work",
       "data.arrange: balanced",
       "evens them out",
       {ChangeKind::balanced_data}},
      {lost.within_group,
       "ranks of a group that wait for the one with the largest items",
       "data.arrange: reordered",
       "evens them out",
       {ChangeKind::reordered_data}},
      plan.overlapped_gradients
          ? Loss{exchange,
                 "exchanging parameters and gradients for longer than the tasks hide",
                 "larger batches or gradient_dtype: bfloat16",
                 "make it a smaller share",
                 {}}
          : Loss{exchange,
                 "gradients summed after the backward pass",
                 "overlap_gradients: true",
                 "hides most of it",
                 {ChangeKind::overlapped_gradients}},
      {share_of("offload"),
       "activations that move to and from the host",
       "keeping them, or computing them again (llm.recompute: full),",
       "takes less",
       {ChangeKind::kept_activations}}};
  if (plan.offload.optimizer)
    losses.push_back({share_of("optimizer"),
                      "the optimizer's state in the host's memory",
                      "offload.optimizer: false",
                      "takes less",
                      {ChangeKind::kept_optimizer}});
  const auto most = std::max_element(
      losses.begin(), losses.end(), [](const Loss& a, const Loss& b) { return a.share < b.share; });
  if (most->share < 0.01) return "nothing but computing takes more than a hundredth of the time";
  const auto is_remedy = [&](const Alternative& one) {
    return one.refused.empty() &&
           std::find(most->changes.begin(), most->changes.end(), one.kind) != most->changes.end();
  };
  // How sequences are packed makes a difference, too: a change that gives less is no remedy.
  constexpr double kWorthIt = 1.005;
  const auto is_faster = [&](const Alternative& one) {
    return is_remedy(one) && one.tokens_per_second > kWorthIt * tokens_per_second;
  };
  const auto helps = [&](const Alternative& one) {
    return is_faster(one) && (one.fits || need.missing() > 0);
  };
  std::string advice;
  if (most->changes.empty() || std::any_of(tried.begin(), tried.end(), helps))
    advice = fmt::format("; {} {}", most->remedy, most->effect);
  else if (std::any_of(tried.begin(), tried.end(), is_faster))
    advice = fmt::format("; {} does not fit", most->remedy);
  else if (std::any_of(tried.begin(), tried.end(), is_remedy))
    advice = fmt::format("; {} gives no more tokens/s here", most->remedy);
  return fmt::format("most is lost to {}{} ({} of the GPUs' time)", most->to, advice,
                     percent(most->share));
}

namespace {

std::int64_t steps_checked(const MultimodalPlan& plan) {
  return std::clamp<std::int64_t>(kSequencesChecked / plan.llm.plan.global_batch, 8, kStepsChecked);
}

Result<CostParameters> cost_of(const MultimodalPlan& plan, const Calibration& calibration) {
  Result<CostParameters> cost = plan_cost(plan.llm, calibration.cost);
  for (const EncoderTower& tower : plan.encoders)
    if (const Status can = tower.layout.fp8 ? check_float8(calibration.cost) : Status::ok(); !can)
      return Error{
          fmt::format("{}: {}", printable(tower.name), can.error().message), {}, can.error().fix};
  if (cost && !cost->slow.empty())
    return Error{
        "the machine has slow ranks, and a plan of several towers does not say which GPU "
        "has which rank",
        {},
        "take a machine without `slow`"};
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
    out.goodput = goodput_of(*plan.llm.failures, static_cast<double>(plan.gpus));
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

std::vector<PlanChange> changes_of(const MultimodalForecast& f) {
  std::vector<PlanChange> out;
  add_data_changes(f.plan, out);
  add_llm_changes(f.plan, out);
  add_encoder_changes(f, out);
  add_offload_changes(f.plan, out);
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
