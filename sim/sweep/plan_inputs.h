// What a command about a plan file reads: the plan, and the calibrations of its machines.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "sim/sweep/variation.h"

namespace lockstep {

struct PlanInputs {
  sweep::SourceFile plan;
  std::vector<sweep::SourceFile> calibrations;  // a shipped one goes by its name
};

// `calibrations`: names or files; none: the plan's own, whose file is seen from where the plan
// lies. Errors: a file that cannot be read; no plan, with what is wrong with it; a calibration that
// is named twice.
Result<PlanInputs> load_plan(const std::string& file, const std::vector<std::string>& calibrations);

// `name` as seen from where `file` lies, unless it is a shipped calibration's name.
std::string calibration_seen_from(const std::string& file, const std::string& name);

}  // namespace lockstep
