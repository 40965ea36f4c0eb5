// A comparison of two runs as text, at most 80 columns wide.
#pragma once

#include <string>

#include "verify/compare_runs.h"

namespace lockstep {

// What parted where, then a line for each step (at most `lines`, the first and the last ones).
std::string comparison_text(const Comparison& comparison, std::size_t lines = 24);

}  // namespace lockstep
