// How much a call moves.
#pragma once

#include "trace/run.h"

namespace lockstep {

// Bytes that the rank puts into the call (of one that it only receives: that it gets), as far as
// shapes and type are recorded; else 0.
double call_bytes(const Run& run, const Call& call);

}  // namespace lockstep
