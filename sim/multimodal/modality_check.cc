#include "sim/multimodal/modality_check.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trace/formats/text/text_trace.h"
#include "trace/load.h"

namespace lockstep::sim {
namespace {

// Parameters of the LLM and of an encoder, as the shown calls name them.
constexpr int kUnitsShown = 2;

bool gathers_as_it_runs(const EncoderTower& tower) {
  // A pipeline keeps what it has gathered over all micro-batches: one call a step, in any case.
  return tower.layout.sharding == Sharding::zero3 && tower.layout.pipeline == 1;
}

// Whether what the encoder calls depends on whether a rank has items.
bool calls_follow_items(const EncoderTower& tower) {
  if (tower.dummy) return false;
  return gathers_as_it_runs(tower) || (tower.gradients == GradientCalls::hooks && tower.trained() &&
                                       tower.layout.sharding < Sharding::zero3);
}

// By rank of the encoder, over all units: in which micro-batches it makes calls.
std::vector<std::vector<bool>> calls_of(
    const EncoderTower& tower, const std::vector<std::vector<std::vector<EncoderLoad>>>& units) {
  std::vector<std::vector<bool>> out;
  for (const auto& unit : units)
    for (std::size_t rank = 0; rank < unit[0].size(); ++rank) {
      std::vector<bool> calls(unit.size(), false);
      for (std::size_t m = 0; m < unit.size(); ++m) {
        // Gradients that accumulate are summed in the backward pass of the last micro-batch alone
        // (DDP's no_sync()).
        const bool time = gathers_as_it_runs(tower) || m + 1 == unit.size();
        calls[m] = time && unit[m][rank].items > 0;
      }
      out.push_back(std::move(calls));
    }
  return out;
}

std::int64_t passes(const std::vector<bool>& calls) {
  return std::count(calls.begin(), calls.end(), true);
}

// Calls match by their number in the group, so ranks diverge if one makes more than another. In a
// unit the first rank makes the most calls and the last one the fewest (ItemsOfUnit).
bool diverges(const EncoderTower& tower, const std::vector<ItemsOfUnit>& units) {
  const auto passes_of = [&](const ItemsOfUnit& unit, std::size_t rank) {
    // As calls_of().
    const std::size_t first = gathers_as_it_runs(tower) ? 0 : unit.items.size() - 1;
    return std::count_if(
        unit.items.begin() + static_cast<std::ptrdiff_t>(first), unit.items.end(),
        [&](std::int64_t items) { return static_cast<std::size_t>(items) > rank; });
  };
  const auto all = passes_of(units[0], 0);
  return std::any_of(units.begin(), units.end(), [&](const ItemsOfUnit& unit) {
    return passes_of(unit, 0) != all || passes_of(unit, unit.ranks - 1) != all;
  });
}

struct HangCount {
  std::int64_t hang = 0;
  std::size_t encoder = 0;
  std::uint64_t first = 0;
};

void count_step(const MultimodalPlan& plan, const DealtItems& dealt, std::int64_t step,
                HangCount& out) {
  for (std::size_t i = 0; i < plan.encoders.size(); ++i) {
    const EncoderTower& tower = plan.encoders[i];
    if (!calls_follow_items(tower) || !diverges(tower, count_items(plan, tower, dealt))) continue;
    if (out.hang++ == 0) {
      out.encoder = i;
      out.first = static_cast<std::uint64_t>(step);
    }
    break;
  }
}

bool can_diverge(const MultimodalPlan& plan) {
  return std::any_of(plan.encoders.begin(), plan.encoders.end(), calls_follow_items);
}

// By plan: in how many of the steps from `first` to before `end` its ranks diverge.
std::vector<Result<HangCount>> count_hangs(const std::vector<MultimodalPlan>& plans,
                                           std::int64_t first, std::int64_t end) {
  std::vector<Result<HangCount>> out(plans.size(), Result<HangCount>(HangCount{}));
  std::vector<const MultimodalPlan*> drawn;
  for (const MultimodalPlan& plan : plans)
    if (can_diverge(plan)) drawn.push_back(&plan);
  const std::vector<DrawnTogether> together = drawn_together(drawn);
  for (std::int64_t step = first; step < end; ++step)
    arrange_each(drawn, together, static_cast<std::uint64_t>(step),
                 [&](const std::vector<std::size_t>& alike, const Result<DealtStep>& dealt) {
                   const DealtItems items = dealt ? items_of(*dealt) : DealtItems{};
                   for (const std::size_t i : alike) {
                     Result<HangCount>& count =
                         out[static_cast<std::size_t>(drawn[i] - plans.data())];
                     if (!count) continue;
                     if (dealt)
                       count_step(*drawn[i], items, step, *count);
                     else
                       count = dealt.error();
                   }
                 });
  return out;
}

std::optional<ModalityDivergence> divergence_of(const HangCount& count, std::int64_t steps) {
  if (count.hang == 0) return std::nullopt;
  ModalityDivergence out;
  out.encoder = count.encoder;
  out.first = count.first;
  out.steps = steps;
  const auto n = static_cast<double>(steps);
  const double p = static_cast<double>(count.hang) / n;
  out.probability = p;
  // Wilson's interval, 95 %.
  constexpr double z = 1.959964;
  const double middle = (p + z * z / (2 * n)) / (1 + z * z / n);
  const double half = z / (1 + z * z / n) * std::sqrt(p * (1 - p) / n + z * z / (4 * n * n));
  out.low = std::max(0.0, middle - half);
  out.high = std::min(1.0, middle + half);
  return out;
}

struct Remedy {
  std::string what;
  MultimodalPlan with;
};

// `encoder`: the first that can diverge.
std::vector<Remedy> remedies_of(const MultimodalPlan& plan, std::size_t encoder) {
  std::vector<Remedy> out;
  MultimodalPlan changed = plan;
  for (EncoderTower& tower : changed.encoders) tower.dummy = true;
  out.push_back({"without_items: dummy (remedy: dummy-image)", changed});
  const EncoderTower& tower = plan.encoders[encoder];
  if (tower.gradients == GradientCalls::hooks) {
    changed = plan;
    for (EncoderTower& other : changed.encoders) other.gradients = GradientCalls::buffer;
    out.push_back({"gradients: buffer, one call a step whatever came", changed});
  }
  if (tower.layout.sharding == Sharding::zero3) {
    changed = plan;
    for (EncoderTower& other : changed.encoders)
      other.layout.sharding = std::min(other.layout.sharding, Sharding::zero2);
    out.push_back({"zero: 2, so that no parameters are gathered during computation", changed});
  }
  if (plan.data.arrangement != Arrangement::balanced) {
    changed = plan;
    changed.data.arrangement = Arrangement::balanced;
    out.push_back({"data.arrange: balanced", changed});
  }
  return out;
}

}  // namespace

std::vector<Result<std::optional<ModalityDivergence>>> check_each(
    const std::vector<MultimodalPlan>& plans, std::int64_t steps) {
  std::vector<Result<std::optional<ModalityDivergence>>> out;
  for (const Result<HangCount>& count : count_hangs(plans, 0, steps)) {
    if (count)
      out.emplace_back(divergence_of(*count, steps));
    else
      out.emplace_back(count.error());
  }
  return out;
}

namespace {

// What ModalityChecks keeps of all plans together, in numbers of up to 8 bytes.
constexpr std::size_t kMaxKept = std::size_t{1} << 24U;

}  // namespace

std::size_t ModalityChecks::Dealt::size() const {
  std::size_t out = 0;
  for (const DealtItems& step : steps) out += kItemKindCount * step.counts.size();
  // Each sample of a manifest has a list for each kind.
  for (const DataSample& sample : by.data.manifest) {
    out += sizeof(DataSample) / sizeof(std::int64_t);
    for (const auto& sizes : sample.items) out += sizes.size();
  }
  return out;
}

Result<const ModalityChecks::Dealt*> ModalityChecks::dealt(const MultimodalPlan& plan,
                                                           std::int64_t steps) {
  const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const Dealt& one) {
    return static_cast<std::int64_t>(one.steps.size()) == steps && deals_alike(one.by, plan);
  });
  if (found != kept_.end()) {
    std::rotate(found, found + 1, kept_.end());
    return &kept_.back();
  }
  Dealt out{plan, {}};
  for (std::int64_t step = 0; step < steps; ++step) {
    Result<std::vector<TrainingSequence>> drawn = draw_step(plan, static_cast<std::uint64_t>(step));
    if (!drawn) return drawn.error();
    out.steps.push_back(items_of(arrange_step(plan, std::move(*drawn))));
  }
  kept_.push_back(std::move(out));
  std::size_t all = 0;
  for (const Dealt& one : kept_) all += one.size();
  while (kept_.size() > 1 && all > kMaxKept) {
    all -= kept_.front().size();
    kept_.erase(kept_.begin());
  }
  return &kept_.back();
}

Result<std::optional<ModalityDivergence>> ModalityChecks::check(const MultimodalPlan& plan,
                                                                std::int64_t steps) {
  if (!can_diverge(plan)) return std::optional<ModalityDivergence>();
  const Result<const Dealt*> dealt = this->dealt(plan, steps);
  if (!dealt) return dealt.error();
  HangCount count;
  for (std::int64_t step = 0; step < steps; ++step)
    count_step(plan, (*dealt)->steps[static_cast<std::size_t>(step)], step, count);
  return divergence_of(count, steps);
}

Result<std::optional<ModalityDivergence>> check_modalities(const MultimodalPlan& plan,
                                                           std::int64_t steps, bool remedies) {
  if (!remedies) return check_each({plan}, steps)[0];
  // Up to the first step that hangs, nobody knows whether remedies matter.
  HangCount count;
  std::int64_t step = 0;
  while (step < steps && count.hang == 0) {
    const Result<HangCount> one = count_hangs({plan}, step, step + 1)[0];
    if (!one) return one.error();
    count = *one;
    ++step;
  }
  if (count.hang == 0) return std::optional<ModalityDivergence>();
  std::vector<Remedy> changes = remedies_of(plan, count.encoder);
  std::vector<MultimodalPlan> plans;
  for (const Remedy& change : changes) plans.push_back(change.with);
  const std::vector<Result<HangCount>> before = count_hangs(plans, 0, step);
  plans.push_back(plan);
  const std::vector<Result<HangCount>> after = count_hangs(plans, step, steps);
  if (!after.back()) return after.back().error();
  count.hang += after.back()->hang;
  std::optional<ModalityDivergence> out = divergence_of(count, steps);
  for (std::size_t i = 0; i < changes.size(); ++i) {
    for (const auto* counted : {&before[i], &after[i]})
      if (!*counted) return counted->error();
    out->remedies.push_back(
        {std::move(changes[i].what),
         static_cast<double>(before[i]->hang + after[i]->hang) / static_cast<double>(steps)});
  }
  return out;
}

namespace {

// The ranks that are shown: all, or the first with the fewest calls, the first with the most, and
// the first of the others.
std::vector<std::size_t> shown_ranks(const std::vector<std::vector<bool>>& ranks) {
  std::vector<std::size_t> out(std::min(ranks.size(), kMaxRanksShown));
  std::iota(out.begin(), out.end(), std::size_t{0});
  if (ranks.size() == out.size()) return out;
  const auto less = [](const std::vector<bool>& a, const std::vector<bool>& b) {
    return passes(a) < passes(b);
  };
  const auto [fewest, most] = std::minmax_element(ranks.begin(), ranks.end(), less);
  for (const auto& it : {fewest, most}) {
    const auto rank = static_cast<std::size_t>(it - ranks.begin());
    if (std::find(out.begin(), out.end(), rank) != out.end()) continue;
    out[rank == static_cast<std::size_t>(fewest - ranks.begin()) ? out.size() - 1
                                                                 : out.size() - 2] = rank;
  }
  std::sort(out.begin(), out.end());
  return out;
}

class CallWriter {
 public:
  static constexpr const char* kLlmGroup = "llm data parallel";

  CallWriter(const std::string& encoder, std::size_t rank, std::size_t world,
             std::size_t encoder_rank)
      : encoder_group_(fmt::format("{} data parallel", encoder)) {
    line({{"header", 1},
          {"rank", rank},
          {"world_size", world},
          {"backend", "nccl"},
          {"program", fmt::format("data-parallel rank {} of the encoder", encoder_rank)}});
    std::vector<std::size_t> all(world);
    std::iota(all.begin(), all.end(), std::size_t{0});
    for (const std::string& group : {encoder_group_, std::string(kLlmGroup)})
      line({{"group", group}, {"ranks", all}});
  }
  void modalities(std::size_t micro_batch, std::string_view kind, bool has) {
    nlohmann::json names = nlohmann::json::array();
    names.push_back("text");
    if (has) names.push_back(std::string(kind));
    line({{"ev", "modality"}, {"n", micro_batch}, {"has", names}});
  }
  void call(const char* op, std::string what, std::size_t micro_batch, bool of_llm = false) {
    line({{"ev", "issue"},
          {"id", id_++},
          {"g", of_llm ? std::string(kLlmGroup) : encoder_group_},
          {"op", op},
          {"what", {std::move(what)}},
          {"step", micro_batch}});
  }
  std::string end() {
    line({{"end", "clean"}});
    return std::move(text_);
  }

 private:
  void line(const nlohmann::json& object) {
    text_ += object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  }
  std::string encoder_group_, text_;
  std::int64_t id_ = 0;
};

}  // namespace

Result<trace::Run> modality_run(const MultimodalPlan& plan, const ModalityDivergence& divergence) {
  const EncoderTower& tower = plan.encoders[divergence.encoder];
  const Result<DealtStep> dealt = deal_step(plan, divergence.first);
  if (!dealt) return dealt.error();
  const auto& units = dealt->encoders[divergence.encoder];
  const std::vector<std::vector<bool>> ranks = calls_of(tower, units);
  const bool gathers = gathers_as_it_runs(tower);
  const std::size_t micro_batches = ranks[0].size();
  const std::size_t per_unit = units[0][0].size();
  const std::vector<std::size_t> shown = shown_ranks(ranks);
  trace::Tables tables;
  std::vector<trace::RankTrace> traces;
  for (std::size_t r = 0; r < shown.size(); ++r) {
    CallWriter writer(tower.name, r, shown.size(), shown[r]);
    const auto& unit = units[shown[r] / per_unit];
    // As many micro-batches as are told apart: of hooks only the last one makes calls.
    for (std::size_t m = gathers ? 0 : micro_batches - 1; m < micro_batches; ++m) {
      const bool has = unit[m][shown[r] % per_unit].items > 0;
      writer.modalities(m, kItemKinds[tower.input], has);
      const auto unit_name = [&](int i) { return fmt::format("{}.layers.{}", tower.name, i); };
      for (int i = 0; has && gathers && i < kUnitsShown; ++i)
        writer.call("all_gather_into_tensor", unit_name(i), m);
      for (int i = kUnitsShown; has && i-- > 0;) {
        if (gathers) writer.call("all_gather_into_tensor", unit_name(i), m);
        if (tower.trained())
          writer.call(gathers ? "reduce_scatter_tensor" : "all_reduce", unit_name(i), m);
      }
    }
    writer.call("all_reduce", "llm", micro_batches - 1, true);
    Result<trace::RankTrace> trace =
        trace::read_text_trace(writer.end(), fmt::format("rank {}", r), tables);
    if (!trace) return trace.error();
    traces.push_back(std::move(*trace));
  }
  return trace::assemble_run(std::move(tables), std::move(traces));
}

}  // namespace lockstep::sim
