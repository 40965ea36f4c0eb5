// Fits the numbers of a machine file to measurements: how fast work is, and what calls cost.
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

// Seconds per unit of work on a processor, which dispatches and carries out its operations itself:
//
//   time = Σ flop[type] · operations of products of that type + byte · bytes of all other kernels
//        + dispatch · operations
struct WorkRates {
  // For matrix products and convolutions alike: they differ by less than the error of the fit.
  std::map<std::string, double> flop;
  double byte = 0;
  double dispatch = 0;
  double median_error = 0;  // of |fitted - measured| / measured
};

// The rates, none below zero, with the least sum of squared relative errors over `work`, whose
// times were measured. The entries are whole steps: in short segments single operations dominate,
// and it is steps that are predicted. O(entries · types). Errors: fewer than kMinMeasured
// entries; products of more than kMaxTypes types.
inline constexpr std::size_t kMinMeasured = 8, kMaxTypes = 4;
Result<WorkRates> fit_work(const std::vector<trace::WorkCost>& work);

// The work of each step, summed over its segments, in the order of steps.
std::vector<trace::WorkCost> by_step(const std::vector<trace::WorkCost>& work);

struct MeasuredCall {
  double bytes = 0;  // of the whole buffer
  double seconds = 0;
  bool rested = false;  // its group had made no call for kRest (sim/engine/shared_cores.h)
};

// alpha and beta of ring all-reduces over `ranks` ranks, by least squared relative errors. Each
// size counts with its median time, as often as it was called. Calls of rested groups are left out.
// Errors: fewer than two sizes; times that do not grow with the size.
Result<LinkCost> fit_all_reduce(const std::vector<MeasuredCall>& calls, std::int64_t ranks);

// How much longer calls of rested groups take than the others: the median, in seconds; 0 if there
// are none. `link`: fitted to the same calls, which `ranks` ranks made.
double fit_start(const std::vector<MeasuredCall>& calls, std::int64_t ranks, const LinkCost& link);

// The links of a machine whose ranks carry out their calls on shared cores. A hop takes its wake
// and, for each rank that shares a core, one turn of work.
struct SharedLink {
  LinkCost link;  // of one turn
  Picos wake;
};
// Separates the two from two fits: of ranks that take `few_turns` at a hop, and of more ranks that
// take `turns`. If both are equal, all of a hop counts as work. Neither result is below 0.
SharedLink share_link(const LinkCost& few, std::int64_t few_turns, const LinkCost& all,
                      std::int64_t turns);

// What no part of a job shows by itself is fitted to the duration of its steps.

// A job that was run, and its program, from a run that timed_run() made. Not owned.
struct MeasuredJob {
  const trace::Run* run = nullptr;
  const RunProgram* program = nullptr;
  double step_seconds = 0;  // above 0: the mean over the steps except the first
};

// Sets the machine's contention and refill so that the simulated steps take as long as the measured
// ones: least squares of the logarithm of their ratio, by pattern search (Hooke and Jeeves, J. ACM
// 8(2), 1961) from the machine's values, about 40 simulations of each job. Jobs whose ranks make
// more than kMaxFittedHops hops are skipped; if no others are left, the machine stays as it is.
// `machine` has cores. Errors: call_cost()'s.
inline constexpr std::int64_t kMaxFittedHops = 1'000'000;
Status fit_sharing(const std::vector<MeasuredJob>& jobs, Machine& machine);

}  // namespace lockstep::sim
