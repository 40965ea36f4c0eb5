// Reading the files that people write: scenarios, plans, machines, calibrations.
#pragma once

#include <string>

#include "base/result.h"

namespace lockstep {

// The text of `file`, of at most 1 MiB.
// Errors: as base/read_file.h.
Result<std::string> read_input(const std::string& file);

}  // namespace lockstep
