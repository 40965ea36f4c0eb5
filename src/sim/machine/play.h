// Runs a job's programs on a machine: on devices of their own, or on the cores that ranks share.
#pragma once

#include <cstddef>
#include <vector>

#include "sim/engine/executor.h"
#include "sim/engine/fold.h"
#include "sim/engine/shared_cores.h"
#include "sim/machine/machine.h"
#include "sim/machine/work_time.h"

namespace lockstep::sim {

// Of a machine that says how many cores a node has. Rank r is on node r / ranks_per_node. `places`:
// of the job's groups; it and `machine` must outlive what is returned. Calls that have no price
// (call_time()) make one hop.
SharedCores shared_cores(const Machine& machine, std::size_t ranks,
                         const std::vector<GroupPlace>& places);

struct Played {
  Folding folding;
  ExecutionResult result;  // without the times of issues, where ranks have devices
};

// `places`: of the job's groups; `cost`: of a call on that machine (call_time()). With a variation
// every rank is a class of its own.
Played play(const ProgramJob& job, const Machine& machine, const std::vector<GroupPlace>& places,
            const CostOfCall& cost, const Variation* variation = nullptr);

}  // namespace lockstep::sim
