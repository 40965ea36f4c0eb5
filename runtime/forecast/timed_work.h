// The times that ranks' work takes on this machine, beside what is counted of it.
#pragma once

#include <string>
#include <vector>

#include "base/interrupts.h"
#include "base/result.h"
#include "runtime/forecast/simulate_scenario_ranks.h"
#include "runtime/job/scenario.h"
#include "trace/work_costs.h"

namespace lockstep {

// How often work is timed: of each stretch the shortest time counts, since all else is the
// machine's.
inline constexpr int kWorkLooks = 3;

// Looks once more at the ranks of `scenario`, one after the other, now timing their work by the
// clock of the thread, and keeps the times that are shorter than those in `counted`, which
// derive_ranks() gave. `options`: of the folder for this look, which is made; what is counted, and
// where, is not read. Errors: derive_ranks', a job that did something else when it was counted.
Status time_work(const Scenario& scenario, DeriveRanksOptions options,
                 std::vector<RankCosts>& counted, Interrupts& interrupts);

// Gives what was counted the times of `timed` where these are shorter than those that it has, or it
// has none. Errors: they are not of one program.
Status keep_shortest(const RankCosts& timed, RankCosts& counted);

}  // namespace lockstep
