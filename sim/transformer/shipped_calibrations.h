// The calibrations that come with the program: sim/machines/calibration-*.yaml, embedded when it is
// built, so that it needs no file at run time.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "sim/transformer/cost_parameters.h"

namespace lockstep::sim {

// "a100-node", "a100-cluster", …
std::vector<std::string> shipped_calibration_names();

// The text of sim/machines/calibration-NAME.yaml; nothing: no such machine type.
std::optional<std::string_view> shipped_calibration_text(std::string_view name);

// Errors: no such machine type.
Result<Calibration> shipped_calibration(std::string_view name);

// The text of sim/machines/calibration-nccl.yaml: see nccl_curves.h.
std::string_view shipped_nccl_curves();

}  // namespace lockstep::sim
