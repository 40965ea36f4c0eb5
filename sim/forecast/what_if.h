// How long a job's steps would take if one thing were different: links, devices, the host, or the
// distribution of work. The job is simulated again each time, so the answer includes what becomes
// critical instead; the critical path alone would promise too much.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/quantities.h"
#include "base/result.h"
#include "sim/engine/from_run.h"
#include "sim/machine/machine.h"
#include "trace/run.h"
#include "trace/work_costs.h"

namespace lockstep::sim {

struct WhatIf {
  std::string key;     // "links_inside"
  std::string change;  // "links inside a node twice as fast"
  Picos step_time;
  double gain = 0;  // the share of the step time that is saved; below 0: it takes longer
};

// The largest gain first. `run` is timed_run()'s for these costs, samples and `machine`; `program`
// was made from it and does not hang. Changes that do not apply to this machine or job are left
// out: links between nodes if there is one node, launches that take no time, work that is
// distributed evenly already. Errors: call_time()'s. O(changes · work of the different ranks).
Result<std::vector<WhatIf>> what_ifs(const trace::Run& run, const RunProgram& program,
                                     const std::vector<const trace::RankCosts*>& costs,
                                     const std::vector<std::int64_t>& samples,
                                     const Machine& machine);

}  // namespace lockstep::sim
