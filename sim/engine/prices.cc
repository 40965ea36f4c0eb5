#include "sim/engine/prices.h"

#include <set>
#include <utility>

#include "base/check.h"

namespace lockstep::sim {
namespace {

std::uint64_t key(std::uint32_t kind, std::size_t call) {
  return (std::uint64_t{kind} << 32U) | static_cast<std::uint32_t>(call);
}

}  // namespace

Result<Prices> Prices::of(const ProgramJob& job, std::vector<std::uint32_t> kinds,
                          const PriceOfCall& price) {
  Prices out;
  out.kinds_ = std::move(kinds);
  std::set<std::pair<std::uint32_t, std::vector<std::uint32_t>>> seen;
  for (const ProgramJob::Member& member : job.ranks) {
    std::vector<std::uint32_t> slots;
    for (const std::uint32_t group : member.groups) slots.push_back(out.kind_of(group));
    const auto [own, is_new] = seen.emplace(member.program, std::move(slots));
    if (!is_new) continue;
    for (const ProgramStep& step : job.programs[member.program].steps) {
      if (step.kind != StepKind::meet) continue;
      const auto [place, is_unknown] =
          out.known_.try_emplace(key(own->second[step.slot], step.index));
      if (!is_unknown) continue;
      const Result<CallCost> cost = price(member.groups[step.slot], job.calls[step.index]);
      if (!cost) return cost.error();
      place->second = *cost;
    }
  }
  return out;
}

CostOfCall Prices::cost_in(const ProgramJob& job) const {
  const ProgramCall* const first = job.calls.data();
  return [this, first](std::uint32_t group, const ProgramCall& call) {
    const auto found = known_.find(key(kind_of(group), static_cast<std::size_t>(&call - first)));
    LOCKSTEP_CHECK(found != known_.end(), "a call that was not priced");
    return found->second;
  };
}

}  // namespace lockstep::sim
