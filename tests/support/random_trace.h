// Traces by chance, for property tests: valid ones, with all that the model can hold.
#pragma once

#include <cstdint>

#include "trace/run.h"

namespace lockstep {

// The same seed gives the same trace.
trace::RankTrace random_trace(std::uint32_t seed, trace::Tables& tables);

}  // namespace lockstep
