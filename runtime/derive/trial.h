// Single assignments, derived exactly: what is left where a step depends on more than its condition
// and that of the first step, so that nothing can be said of all assignments.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/interrupts.h"
#include "base/result.h"
#include "runtime/derive/derivation_plan.h"
#include "runtime/derive/lone_run.h"
#include "runtime/job/scenario.h"
#include "verify/product/decide.h"

namespace lockstep::runtime {

// By step, then by rank: the conditions (by place in the plan) of all steps up to the last that the
// assignment makes; those that it leaves out are as the one before.
std::vector<std::vector<std::size_t>> conditions_of(const verify::Assignment& assignment);

// Tries assignments in which all ranks are as usual but for one, in each kind of step (at most
// kMostTrials): looks at each rank alone through these very steps, and lets verify() judge the
// traces. The first that goes wrong is a proof; nothing, if none does, says nothing of the others.
// Errors: those of run_alone; files that cannot be read or written.
inline constexpr std::size_t kMostTrials = 8;
Result<std::optional<verify::Counterexample>> try_assignments(const Scenario& scenario,
                                                              const DerivationPlan& plan,
                                                              const verify::ProductModel& model,
                                                              const LoneOptions& options,
                                                              Interrupts& interrupts);

}  // namespace lockstep::runtime
