// From measurements to the numbers of a machine file: how fast work is, and what calls cost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "sim/collectives/collective.h"
#include "sim/engine/from_run.h"
#include "sim/machine/machine.h"
#include "trace/run.h"
#include "trace/work_costs.h"

namespace lockstep::sim {

// Seconds that each unit of work takes on a processor, which carries out what it dispatches itself:
//   time = Σ flop[type] · operations of products of that type + byte · bytes of all other kernels
//        + dispatch · operations
struct WorkRates {
  // Matrix products and convolutions alike: they differ by less than fits do.
  std::map<std::string, double> flop;
  double byte = 0;
  double dispatch = 0;
  double median_error = 0;  // of |fitted - measured| / measured
};

// The rates, none below zero, with the least sum of squared relative errors over `work`, whose
// times were measured: of whole steps, since of short stretches single operations show, and since
// it is steps that are predicted. O(entries · types). Errors: fewer than kLeastMeasured of them;
// products of more than kMostTypes.
inline constexpr std::size_t kLeastMeasured = 8, kMostTypes = 4;
Result<WorkRates> fit_work(const std::vector<trace::WorkCost>& work);

// The work of a rank's steps, a sum for each step, in their order.
std::vector<trace::WorkCost> by_step(const std::vector<trace::WorkCost>& work);

struct MeasuredCall {
  double bytes = 0;  // of the whole buffer
  double seconds = 0;
  bool rested = false;  // its group had made no call for kRest (sim/engine/shared_cores.h)
};

// alpha and beta of ring all-reduces over `ranks` ranks, by least squared relative errors, from the
// median time of each size, which counts as often as it was called. Calls of groups that had rested
// are left out. Errors: fewer than two sizes; times that do not grow with the size.
Result<LinkCost> fit_all_reduce(const std::vector<MeasuredCall>& calls, std::int64_t ranks);

// What calls of groups that had rested take longer than the others: the median, in seconds; 0 where
// there are none. `link`: fitted to the same calls, which `ranks` made.
double fit_start(const std::vector<MeasuredCall>& calls, std::int64_t ranks, const LinkCost& link);

// What the links of a machine cost whose ranks carry their calls themselves, and share its cores: a
// hop takes its wake, and as many turns of its work as ranks share a core.
struct SharedLink {
  LinkCost link;  // of one turn
  Picos wake;
};
// From links fitted to ranks that take `few_turns` at a hop, and to more that take `turns`, which
// tell the two apart; where both are alike, all of a hop is work. Neither is below 0.
SharedLink share_link(const LinkCost& few, std::int64_t few_turns, const LinkCost& all,
                      std::int64_t turns);

// What cannot be seen in any part of a job alone: fitted to how long its steps take.

// A job that was run, and its program, of a run that timed_run() made. Not owned.
struct MeasuredJob {
  const trace::Run* run = nullptr;
  const RunProgram* program = nullptr;
  double step_seconds = 0;  // above 0: the mean over the steps but the first
};

// Sets the machine's contention and refill, so that the simulated steps of all jobs take as long as
// they did, by least squares of the logarithms of their ratio: by pattern search (Hooke and Jeeves,
// J. ACM 8(2), 1961) from what the machine has, some 40 simulations of each. Jobs whose ranks make
// more than kMostFittedHops hops are left out; where no others are, the machine stays as it is.
// `machine`: with cores. Errors: call_cost()'s.
inline constexpr std::int64_t kMostFittedHops = 1'000'000;
Status fit_sharing(const std::vector<MeasuredJob>& jobs, Machine& machine);

}  // namespace lockstep::sim
