// Compares how a job went with what its scenario expects.
#pragma once

#include <string>
#include <vector>

#include "runtime/job/scenario.h"
#include "runtime/launch/job_runner.h"

namespace lockstep::runtime {

// The differences, a sentence each; empty if all is as expected. The leading finding is the first
// of the report.
std::vector<std::string> differences(const Scenario::Expect& expected, const JobOutcome& outcome);

}  // namespace lockstep::runtime
