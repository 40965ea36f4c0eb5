// The one clock: monotonic and the same for all processes of a machine.
#pragma once

#include <cstdint>

namespace lockstep {

// Nanoseconds of CLOCK_MONOTONIC. Only differences are meaningful.
std::int64_t monotonic_nanos();

}  // namespace lockstep
