// What the ranks' batches held, step by step: a row for each kind of rank, a column for each step
// around the one that matters.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trace/run.h"

namespace lockstep::reports::html {

// Markup; empty where no rank recorded modalities. `step`: the one to be seen; none: the last.
// O(modality events).
std::string modality_table(const trace::Run& run, std::optional<std::int64_t> step);

}  // namespace lockstep::reports::html
