// Habit: what a rank's own past says it calls next. Training repeats itself, so that a call in the
// place of another, or one too many, stands out against the last rounds of the same rank.
#pragma once

#include <cstdint>
#include <optional>

#include "verify/context.h"

namespace lockstep {

// Whether the trace holds what the rank called before: not where a bounded recorder dropped it, nor
// in a dump of open calls alone. O(calls).
bool knows_its_past(const Context& context, std::uint32_t rank);

// Whether two calls of one rank are one of its program: same group, operation, sizes, parameters,
// peer and source line, as far as these were recorded.
bool is_same_of_program(const Context& context, const Call& a, const Call& b);

// The earlier call that the rank's past puts in this call's place: what came the last time after
// the calls just before it. The longest stretch of equal calls decides; nothing where there is
// none, or where two as long say different things. O(4096 · 64) comparisons at most.
std::optional<std::uint32_t> usual_call(const Context& context, CallRef place);

// The newest call that shows how far the rank's program came: over NCCL the one it issued last,
// since its host goes on; else the one in which it waits. kNoCall: it waits in none.
std::uint32_t newest_call(const Context& context, std::uint32_t rank);

// What the past says of a call: that it is usual there; that another one is; or nothing.
enum class Usual : std::uint8_t { yes, no, unknown };
Usual is_usual(const Context& context, CallRef call);

}  // namespace lockstep
