#include "sim/machine/play.h"

#include <cstdint>
#include <utility>

namespace lockstep::sim {

SharedCores shared_cores(const Machine& machine, std::size_t ranks) {
  SharedCores out;
  out.speeds = {machine.cores.value_or(1), machine.contention, machine.slice};
  out.wake = machine.wake;
  out.start = machine.start;
  out.refill = machine.refill;
  for (std::size_t r = 0; r < ranks; ++r)
    out.node_of.push_back(
        static_cast<std::uint32_t>(r / static_cast<std::size_t>(machine.ranks_per_node)));
  return out;
}

Result<Prices> prices_on(const Machine& machine, const ProgramJob& job,
                         const std::vector<GroupPlace>& places) {
  return Prices::of(job, kinds_of(places), [&](std::uint32_t group, const ProgramCall& call) {
    return call_cost(call, places[group], machine);
  });
}

Played play(const ProgramJob& job, const Machine& machine, const std::vector<GroupPlace>& places,
            const Prices& prices, const Variation* variation) {
  const CostOfCall cost = prices.cost_in(job);
  if (machine.cores)
    return {keep_apart(job),
            execute_on_cores(job, cost, shared_cores(machine, job.ranks.size()), variation)};
  Folding folding = variation == nullptr ? fold(job, kinds_of(places)) : keep_apart(job);
  ExecutionResult result = execute(job, folding, cost, {{}, false, variation});
  return {std::move(folding), std::move(result)};
}

}  // namespace lockstep::sim
