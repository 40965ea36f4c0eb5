// The table of a study: strategy by remedy, what was right, what it cost, what was learned.
#pragma once

#include <string>
#include <vector>

#include "runtime/study/figures.h"

namespace lockstep {

// For a terminal of 80 columns: by strategy, once for what is right and once for what it costs.
// Combinations are in the order of their strategies.
std::string study_text(const std::vector<Combination>& combinations);
// One Markdown table with all columns.
std::string study_markdown(const std::vector<Combination>& combinations);
// An array of objects; every measurement with median, low and high. Bytes, milliseconds; shares
// between 0 and 1.
std::string study_json(const std::vector<Combination>& combinations);

}  // namespace lockstep
