// The scenarios that a derivation plan is run by: one for each history, and the one that shows a
// counterexample.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/derive/derivation_plan.h"

namespace lockstep::runtime {

// The scenario, as text, of a history of the plan. It watches, evaluates and expects nothing; if
// the job saves checkpoints, it saves one in every step, in the folder of `file`. `text`: the
// original scenario. Errors: those of parse_scenario.
Result<std::string> history_scenario(const std::string& text, const std::string& file,
                                     const DerivationPlan& plan,
                                     const DerivationPlan::History& history);

// The scenario in which each rank is in the given condition in each step (`conditions`: by step,
// then by rank). `lockstep run` shows counterexamples with it. Errors: those of parse_scenario.
Result<std::string> assignment_scenario(const std::string& text, const std::string& file,
                                        const DerivationPlan& plan,
                                        const std::vector<std::vector<std::size_t>>& conditions);

}  // namespace lockstep::runtime
