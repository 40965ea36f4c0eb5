#include "sim/forecast/flop_use.h"

#include <algorithm>
#include <limits>
#include <map>

#include "sim/machine/work_time.h"

namespace lockstep::sim {
namespace {

// Of one rank's measured steps together.
FlopUse of_rank(const RankCosts& costs, const Machine& machine, std::size_t skipped,
                std::size_t count) {
  constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  std::int64_t first = kNever;
  for (const WorkCost& work : costs.work)
    if (work.step >= 0) first = std::min(first, work.step);
  FlopUse out;
  if (first == kNever) return out;
  for (const WorkCost& work : costs.work) {
    const std::int64_t step = work.step - first - static_cast<std::int64_t>(skipped);
    if (work.step < 0 || step < 0 || step >= static_cast<std::int64_t>(count)) continue;
    if (ends_between_steps(work.before)) continue;
    for (const WorkCost::Flops& flops : work.flops) {
      const double all = flops.matmul + flops.convolution;
      out.flops += all;
      out.peak_seconds +=
          all / static_cast<double>(compute_for(machine, flops.dtype).peak.per_second);
    }
  }
  return out;
}

}  // namespace

FlopUse flop_use(const std::vector<const RankCosts*>& costs, const Machine& machine,
                 std::size_t skipped, std::size_t count) {
  FlopUse out;
  if (count == 0 || costs.empty()) return out;
  std::map<const RankCosts*, FlopUse> known;
  for (const RankCosts* own : costs) {
    const auto [found, is_new] = known.try_emplace(own);
    if (is_new) found->second = of_rank(*own, machine, skipped, count);
    out.flops += found->second.flops;
    out.peak_seconds += found->second.peak_seconds;
  }
  out.flops /= static_cast<double>(count);
  out.peak_seconds /= static_cast<double>(count) * static_cast<double>(costs.size());
  return out;
}

}  // namespace lockstep::sim
