// Writes a rank's calls and work as a Chakra execution trace, as ASTRA-sim and Chakra's own tools
// read it (chakra.cc says what the file holds).
//
// A trace is a program, and Chakra's are graphs: each node depends on what its stream did before,
// on where the host was when it queued the node, and on what either waited for. The host's waits
// are nodes without a duration. Ids follow the program, so Chakra's feeder, which takes the
// smallest id that is ready, hands the nodes out in its order.
#pragma once

#include <string>

#include "base/result.h"
#include "trace/run.h"

namespace lockstep::trace {

// The content of a file `name.<rank>.et`, schema 0.0.4. What Chakra has no field for is in
// attributes that its tools pass over (nodes.h), so that reading it again gives the same calls.
// A call lasts as long as the rank's device was in it, its wait for the others included, where that
// was recorded. Left out: steps, values, samples, source locations, tags, splits, and when calls
// began.
// Errors, with the rank's file: an operation that Chakra does not have; a receive from any source;
// a wait for what was not issued before.
Result<std::string> chakra_trace(const RankTrace& trace, const Tables& tables);

}  // namespace lockstep::trace
