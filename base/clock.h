// The one clock: monotonic, shared by all processes of a machine, never set back.
#pragma once

#include <cstdint>

namespace lockstep {

// Nanoseconds of CLOCK_MONOTONIC. Only differences mean anything.
std::int64_t monotonic_nanos();

}  // namespace lockstep
