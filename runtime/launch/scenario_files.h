// Finding and loading the scenarios that a command line names.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/job/scenario.h"

namespace lockstep::runtime {

// The scenario files that `paths` name: files, also without their ending; for folders all *.yaml
// and *.yml in them and below, sorted. Errors: a path that does not exist, a folder without
// scenarios.
Result<std::vector<std::string>> scenario_files(const std::vector<std::string>& paths);

// An error if "expect" names a rule that does not exist.
std::optional<Error> unknown_rule(const Scenario& scenario);

// Loads and checks one scenario, including that the rules it expects exist and that its replay can
// be loaded.
Result<Scenario> load_checked_scenario(const std::string& file);

}  // namespace lockstep::runtime
