#include "sim/multimodal/modality_check.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/multimodal/encoder_calls.h"

namespace lockstep::sim {
namespace {

// Calls match by their number in the group, so ranks diverge if one makes more than another. In a
// unit the first rank makes the most calls and the last one the fewest (ItemsOfUnit).
bool makes_unequal_calls(const EncoderTower& tower, const std::vector<ItemsOfUnit>& units) {
  const auto passes_of = [&](const ItemsOfUnit& unit, std::size_t rank) {
    // As micro_batches_with_calls().
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

// Which towers gather in each micro-batch on the first and on the last rank of a unit: a bit for
// each. In a unit all ranks between the two do what these do where they do the same.
using GatheringTowers = std::vector<std::uint32_t>;
struct GatheringRanks {
  GatheringTowers first, last;
};

std::vector<GatheringRanks> gathering_ranks(const MultimodalPlan& plan, const DealtItems& dealt) {
  std::vector<GatheringRanks> out(dealt.replicas, {GatheringTowers(dealt.micro_batches, 0),
                                                   GatheringTowers(dealt.micro_batches, 0)});
  for (std::size_t i = 0; i < plan.encoders.size(); ++i) {
    const EncoderTower& tower = plan.encoders[i];
    if (!gathers_beside_llm(tower)) continue;
    const std::uint32_t bit = 1U << i;
    const std::vector<ItemsOfUnit> units = count_items(plan, tower, dealt);
    for (std::size_t unit = 0; unit < units.size(); ++unit)
      for (std::size_t m = 0; m < dealt.micro_batches; ++m) {
        const std::int64_t items = units[unit].items[m];
        const auto ranks = static_cast<std::int64_t>(units[unit].ranks);
        if (tower.dummy || items > 0) out[unit].first[m] |= bit;
        if (tower.dummy || items >= ranks) out[unit].last[m] |= bit;
      }
  }
  return out;
}

GatheringTowers without_idle(GatheringTowers towers) {
  std::erase(towers, 0U);
  return towers;
}

// Ranks that gather the same towers as often as others can still wait for each other: in an
// encoder's call for a rank that has its items in another micro-batch, which waits in a call of the
// LLM or of another encoder that comes before. So the calls of all must come in one order.
bool gather_in_unequal_order(const MultimodalPlan& plan, const std::vector<GatheringRanks>& ranks) {
  const std::size_t together = replicas_that_meet(plan);
  const GatheringTowers order = without_idle(ranks[0].first);
  for (std::size_t unit = 0; unit < ranks.size(); ++unit)
    for (const GatheringTowers* towers : {&ranks[unit].first, &ranks[unit].last}) {
      if (without_idle(*towers) != order) return true;
      // Replicas that meet in the LLM's calls do so in every micro-batch.
      if (together > 1 && *towers != ranks[unit - unit % together].first) return true;
    }
  return false;
}

// Whether ranks of the encoder have items in different micro-batches.
bool gathers_unequally(const std::vector<GatheringRanks>& ranks, std::size_t encoder) {
  const std::uint32_t bit = 1U << encoder;
  for (const GatheringRanks& unit : ranks)
    for (const GatheringTowers* towers : {&unit.first, &unit.last})
      for (std::size_t m = 0; m < towers->size(); ++m)
        if (((*towers)[m] & bit) != (ranks[0].first[m] & bit)) return true;
  return false;
}

// The first encoder whose ranks call unequally in a step, or in another order; nothing: none.
std::optional<std::size_t> diverging_encoder(const MultimodalPlan& plan, const DealtItems& dealt) {
  std::vector<std::size_t> beside;
  for (std::size_t i = 0; i < plan.encoders.size(); ++i) {
    const EncoderTower& tower = plan.encoders[i];
    if (!calls_follow_items(tower)) continue;
    if (makes_unequal_calls(tower, count_items(plan, tower, dealt))) return i;
    if (gathers_beside_llm(tower)) beside.push_back(i);
  }
  if (beside.empty()) return std::nullopt;
  const std::vector<GatheringRanks> ranks = gathering_ranks(plan, dealt);
  if (!gather_in_unequal_order(plan, ranks)) return std::nullopt;
  for (const std::size_t i : beside)
    if (gathers_unequally(ranks, i)) return i;
  return std::nullopt;
}

struct HangCount {
  std::int64_t hang = 0;
  std::size_t encoder = 0;
  std::uint64_t first = 0;
};

void count_step(const MultimodalPlan& plan, const DealtItems& dealt, std::int64_t step,
                HangCount& out) {
  const std::optional<std::size_t> encoder = diverging_encoder(plan, dealt);
  if (!encoder || out.hang++ > 0) return;
  out.encoder = *encoder;
  out.first = static_cast<std::uint64_t>(step);
}

bool can_diverge(const MultimodalPlan& plan) {
  return std::any_of(plan.encoders.begin(), plan.encoders.end(), calls_follow_items);
}

// Counts, for each of several plans, the steps in which its ranks diverge. What was dealt `before`
// is not dealt again; what is goes to `keep`, if there is one (it may be the same).
class HangCounter {
 public:
  HangCounter(const std::vector<MultimodalPlan>& plans, const DealtBefore& before,
              DealtBefore* keep)
      : plans_(plans), counts_(plans.size(), Result<HangCount>(HangCount{})) {
    for (const MultimodalPlan& plan : plans)
      if (can_diverge(plan)) drawn_.push_back(&plan);
    together_ = drawn_together(drawn_);
    // Plans are compared here once for all steps: they may have long manifests.
    before_.resize(drawn_.size(), nullptr);
    keep_.resize(drawn_.size(), nullptr);
    for (const DrawnTogether& one : together_)
      for (const std::vector<std::size_t>& alike : one.dealt) {
        if (keep != nullptr) keep_[alike[0]] = &keep->add(*drawn_[alike[0]]);
        before_[alike[0]] = before.find(*drawn_[alike[0]]);
      }
  }

  void count(std::int64_t step) {
    const auto at = static_cast<std::size_t>(step);
    for (const DrawnTogether& one : together_) {
      // Drawn when the first needs it.
      std::optional<Result<std::vector<TrainingSequence>>> drawn;
      for (const std::vector<std::size_t>& alike : one.dealt) {
        const std::size_t first = alike[0];
        const DealtBefore::Steps* const before = before_[first];
        if (before != nullptr && at < before->size() && (*before)[at]) {
          count_alike(alike, *(*before)[at], step);
          continue;
        }
        if (!drawn) drawn = draw_step(*drawn_[one.drawn_by], static_cast<std::uint64_t>(step));
        if (!*drawn) {
          for (const std::size_t i : alike)
            if (count_of(i)) count_of(i) = drawn->error();
          continue;
        }
        DealtItems items = deal_items(*drawn_[first], **drawn);
        count_alike(alike, items, step);
        if (keep_[first] == nullptr) continue;
        if (keep_[first]->size() <= at) keep_[first]->resize(at + 1);
        (*keep_[first])[at] = std::move(items);
      }
    }
  }

  // By plan, of the steps so far.
  const std::vector<Result<HangCount>>& counts() const { return counts_; }

 private:
  Result<HangCount>& count_of(std::size_t drawn) {
    return counts_[static_cast<std::size_t>(drawn_[drawn] - plans_.data())];
  }
  void count_alike(const std::vector<std::size_t>& alike, const DealtItems& items,
                   std::int64_t step) {
    for (const std::size_t i : alike)
      if (Result<HangCount>& count = count_of(i)) count_step(*drawn_[i], items, step, *count);
  }

  const std::vector<MultimodalPlan>& plans_;
  std::vector<const MultimodalPlan*> drawn_;  // those that can diverge
  std::vector<DrawnTogether> together_;
  std::vector<const DealtBefore::Steps*> before_;  // of the first of plans that deal alike
  std::vector<DealtBefore::Steps*> keep_;          // the same
  std::vector<Result<HangCount>> counts_;
};

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

bool order_matters(const MultimodalPlan& plan, std::size_t encoder) {
  const auto gather = std::count_if(plan.encoders.begin(), plan.encoders.end(), gathers_beside_llm);
  return gathers_beside_llm(plan.encoders[encoder]) && (gather > 1 || replicas_that_meet(plan) > 1);
}

const DealtBefore::Steps* DealtBefore::find(const MultimodalPlan& plan) const {
  const auto found = std::find_if(plans_.begin(), plans_.end(),
                                  [&](const OfPlan& one) { return deals_alike(one.by, plan); });
  return found == plans_.end() ? nullptr : &found->steps;
}

DealtBefore::Steps& DealtBefore::add(const MultimodalPlan& plan) {
  const auto found = std::find_if(plans_.begin(), plans_.end(),
                                  [&](const OfPlan& one) { return deals_alike(one.by, plan); });
  if (found != plans_.end()) return found->steps;
  plans_.push_back({plan, {}});
  return plans_.back().steps;
}

std::vector<Result<std::optional<ModalityDivergence>>> check_each(
    const std::vector<MultimodalPlan>& plans, std::int64_t steps, const DealtBefore& before) {
  std::vector<Result<std::optional<ModalityDivergence>>> out;
  HangCounter counter(plans, before, nullptr);
  for (std::int64_t step = 0; step < steps; ++step) counter.count(step);
  for (const Result<HangCount>& count : counter.counts()) {
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
    out.steps.push_back(deal_items(plan, *drawn));
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
                                                           std::int64_t steps, bool remedies,
                                                           DealtBefore* dealt) {
  DealtBefore own;
  DealtBefore& kept = dealt == nullptr ? own : *dealt;
  // Up to the first step that hangs, nobody knows whether remedies matter.
  const std::vector<MultimodalPlan> alone = {plan};
  HangCounter planned(alone, kept, &kept);
  for (std::int64_t step = 0; step < steps; ++step) {
    planned.count(step);
    const Result<HangCount>& count = planned.counts()[0];
    if (!count) return count.error();
    if (remedies && count->hang > 0) break;
  }
  HangCount count = *planned.counts()[0];
  if (count.hang == 0 || !remedies) return divergence_of(count, steps);
  std::vector<Remedy> changes = remedies_of(plan, count.encoder);
  std::vector<MultimodalPlan> plans;
  plans.reserve(changes.size() + 1);
  for (const Remedy& change : changes) plans.push_back(change.with);
  plans.push_back(plan);
  HangCounter counter(plans, kept, &kept);
  for (std::int64_t step = 0; step < steps; ++step) counter.count(step);
  const std::vector<Result<HangCount>>& counts = counter.counts();
  if (!counts.back()) return counts.back().error();
  std::optional<ModalityDivergence> out = divergence_of(*counts.back(), steps);
  for (std::size_t i = 0; i < changes.size(); ++i) {
    if (!counts[i]) return counts[i].error();
    out->remedies.push_back({std::move(changes[i].what),
                             static_cast<double>(counts[i]->hang) / static_cast<double>(steps)});
  }
  return out;
}

}  // namespace lockstep::sim
