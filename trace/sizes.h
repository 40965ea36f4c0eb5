// Element types by their PyTorch names.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "trace/run.h"

namespace lockstep::trace {

// Bytes of one element: "float32" 4, "bfloat16" 2, "bool" 1, "complex64" 8, "float8_e4m3fn" 1.
// Nothing for names that are not known.
std::optional<std::int64_t> element_bytes(std::string_view dtype);

// How much a call moves.

// Bytes that the rank puts into the call (of one that it only receives: that it gets), as far as
// shapes and type are recorded; else 0.
double call_bytes(const Run& run, const Call& call);

}  // namespace lockstep::trace
