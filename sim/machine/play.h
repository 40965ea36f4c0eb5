// Runs a job's programs on a machine: on devices of their own, or on the cores that ranks share.
#pragma once

#include <cstddef>
#include <vector>

#include "base/result.h"
#include "sim/engine/executor.h"
#include "sim/engine/fold.h"
#include "sim/engine/shared_cores.h"
#include "sim/machine/machine.h"
#include "sim/machine/work_time.h"

namespace lockstep::sim {

// Of a machine that says how many cores a node has. Rank r is on node r / ranks_per_node.
SharedCores shared_cores(const Machine& machine, std::size_t ranks);

// `places`: of the job's groups. Errors: call_cost()'s.
Result<Prices> prices_on(const Machine& machine, const ProgramJob& job,
                         const std::vector<GroupPlace>& places);

struct Played {
  Folding folding;
  ExecutionResult result;  // without the times of issues, where ranks have devices
};

// `prices`: of the job on that machine. With a variation every rank is a class of its own.
Played play(const ProgramJob& job, const Machine& machine, const std::vector<GroupPlace>& places,
            const Prices& prices, const Variation* variation = nullptr);

}  // namespace lockstep::sim
