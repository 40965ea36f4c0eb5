// A trace like that of a real training run, of any length: per step 20 all-reduces of parameter
// gradients, each with its completion and its wait, and the marks of the step.
#pragma once

#include <cstdint>

#include "trace/run.h"

namespace lockstep {

trace::RankTrace synthetic_trace(std::uint64_t events, trace::Tables& tables);

}  // namespace lockstep
