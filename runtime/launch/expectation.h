// Compares how a job went with what its scenario expects.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/job/scenario.h"
#include "runtime/launch/job_runner.h"

namespace lockstep {

// What differs, a sentence each; empty where all is as expected. The leading finding is the
// report's first.
std::vector<std::string> differences(const Scenario::Expect& expected, const JobOutcome& outcome);

// Rules that the scenario expects and that do not exist.
std::optional<Error> unknown_rule(const Scenario& scenario);

}  // namespace lockstep
