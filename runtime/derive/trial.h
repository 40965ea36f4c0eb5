// Tries single assignments, derived exactly. Used if a step depends on more than its condition and
// that of the first step, so nothing can be decided for all assignments.
#pragma once

#include <optional>
#include <vector>

#include "base/interrupts.h"
#include "base/result.h"
#include "runtime/derive/derivation_plan.h"
#include "runtime/derive/lone_run.h"
#include "runtime/job/scenario.h"
#include "verify/product/decide.h"

namespace lockstep::runtime {

// The conditions (indices in the plan) by step, then by rank, up to the last step that the
// assignment names. Steps that it leaves out repeat the one before.
std::vector<std::vector<std::size_t>> conditions_of(const verify::Assignment& assignment);

// Tries assignments in which all ranks except one are as usual, in each kind of step (at most
// kMaxTrials). It runs each rank alone through exactly these steps (of more than kMaxRanksRun
// ranks one of each class), and verify() judges the traces. The first that goes wrong is a proof.
// If none does, nothing is known about the others. Errors: those of run_alone; files that cannot be
// read or written.
inline constexpr std::size_t kMaxTrials = 8;
Result<std::optional<verify::Counterexample>> try_assignments(const Scenario& scenario,
                                                              const DerivationPlan& plan,
                                                              const verify::ProductModel& model,
                                                              const LoneOptions& options,
                                                              Interrupts& interrupts);

}  // namespace lockstep::runtime
