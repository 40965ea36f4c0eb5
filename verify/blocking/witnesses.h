// Habit: what a rank's own past says it calls next. Training repeats itself, so that a call in the
// place of another, or one too many, stands out against the last rounds of the same rank.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "verify/context.h"

namespace lockstep::verify {

// Whether the trace holds what the rank called before: not where a bounded recorder dropped it, nor
// in a dump of open calls alone. O(calls).
bool knows_its_past(const Context& context, std::uint32_t rank);

// Whether two calls of one rank are one of its program: same group, operation, sizes, parameters,
// peer and source line, as far as these were recorded.
bool is_same_of_program(const Context& context, const trace::Call& a, const trace::Call& b);

// The earlier calls that the rank's past puts in this call's place: what came after the calls just
// before it whenever these came by. The longest sequence of equal calls decides; where two as long
// went on differently, each is one. At most 8, the newest first. O(4096 · 64) comparisons at most.
std::vector<std::uint32_t> usual_calls(const Context& context, CallRef place);

// The only one of them; nothing where there is none, or more than one.
std::optional<std::uint32_t> usual_call(const Context& context, CallRef place);

// The newest call that shows how far the rank's program came: over NCCL the one it issued last,
// since its host goes on; else the one in which it waits. kNoCall: it waits in none.
std::uint32_t newest_call(const Context& context, std::uint32_t rank);

// What the past says of a call: that it is usual there; that only others are; or nothing.
enum class Usual : std::uint8_t { yes, no, unknown };
Usual is_usual(const Context& context, CallRef call);

// Where a rank broke with its own past: a call among its newest that was not usual there.
struct Break {
  std::uint32_t rank = 0;   // rank index
  std::uint32_t call = 0;   // the first such call
  std::uint32_t usual = 0;  // the earlier call that its past has in that place
};

// The breaks of some ranks, while all the others went on as always. None, where the past of one of
// them does not say. O(ranks · 64) times the cost of `is_usual`.
std::vector<Break> breaks_with_the_past(const Context& context,
                                        const std::vector<std::uint32_t>& ranks);

// Sisters: ranks in the same place of another group that is as large. The pipelines of a mesh, say,
// exchange the same messages side by side, so that one of them shows what another should do.

// Whether ranks of other groups as large make calls like this one: then it is no stranger to the
// program. O(calls).
bool is_made_in_sister_groups(const Context& context, CallRef call);

// Those of the ranks in a cycle of messages whose messages part from their sisters', while all the
// others did as theirs. Nobody, where one has no sister or its sisters are divided. O(calls).
std::vector<std::uint32_t> part_from_sisters(const Context& context,
                                             const std::vector<std::size_t>& points);

}  // namespace lockstep::verify
