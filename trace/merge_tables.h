// Moves traces from one set of Tables to another: files are read in parallel, each thread interning
// into tables of its own.
#pragma once

#include <span>

#include "trace/run.h"

namespace lockstep {

// Interns in `into` what `traces` use of `from`, and makes their ids those of `into`.
// O(calls + distinct values).
void move_to_tables(Tables& into, const Tables& from, std::span<RankTrace> traces);

}  // namespace lockstep
