#include "runtime/forecast/timed_work.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/files/make_folder.h"

namespace lockstep {
namespace {

Error other_program() {
  return {"a rank did something else when it was timed than when it was counted", {}, ""};
}

}  // namespace

Status time_work(const Scenario& scenario, DeriveRanksOptions options,
                 std::vector<RankCosts>& counted, Interrupts& interrupts) {
  if (const Status ok = make_folder(options.folder); !ok) return ok;
  options.on_meta = false;
  options.costs = LoneRanks::Costs::times;
  Result<DerivedRanks> timed = derive_ranks(scenario, options, interrupts);
  if (!timed) return timed.error();
  if (timed->costs.size() != counted.size()) return other_program();
  for (std::size_t r = 0; r < counted.size(); ++r) {
    RankCosts& costs = timed->costs[r];
    // The stages of a pipeline are looked at together: the other threads are not their own.
    if (scenario.ranks_of_replica() > 1) costs.beside_nanos = 0;
    if (const Status ok = keep_shortest(costs, counted[r]); !ok) return ok;
  }
  return Status::ok();
}

Status keep_shortest(const RankCosts& timed, RankCosts& counted) {
  if (counted.work.size() != timed.work.size() || counted.rank != timed.rank)
    return other_program();
  const auto shorter = [](std::int64_t a, std::int64_t b) { return a == 0 ? b : std::min(a, b); };
  for (std::size_t i = 0; i < timed.work.size(); ++i) {
    WorkCost& kept = counted.work[i];
    if (kept.before != timed.work[i].before || kept.id != timed.work[i].id) return other_program();
    kept.nanos = shorter(kept.nanos, timed.work[i].nanos);
  }
  counted.beside_nanos = shorter(counted.beside_nanos, timed.beside_nanos);
  return Status::ok();
}

}  // namespace lockstep
