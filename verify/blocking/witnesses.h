// Habit: what a rank's own past predicts as its next call. Training steps repeat, so a replaced or
// additional call stands out against the rank's last rounds.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "verify/context.h"

namespace lockstep::verify {

// Whether the trace holds the rank's earlier calls: false where a bounded recorder dropped them and
// in a dump of open calls alone. O(calls).
bool knows_its_past(const Context& context, std::uint32_t rank);

// Whether two calls of one rank come from the same statement of its program: same group, operation,
// sizes, parameters, peer and source location, as far as these were recorded.
bool is_same_of_program(const Context& context, const trace::Call& a, const trace::Call& b);

// The earlier calls that the past predicts at this call's position: those that followed the calls
// just before it at earlier occurrences. With a past of "a b c | a b d | a b", c and d are usual
// after "a b". The occurrence with the longest equal sequence decides; of several that are equally
// long, each counts. At most 8, the newest first. O(4096 · 64) comparisons at most.
std::vector<std::uint32_t> usual_calls(const Context& context, CallRef place);

// The usual call, if there is exactly one.
std::optional<std::uint32_t> usual_call(const Context& context, CallRef place);

// The newest call, which shows how far the rank's program got: over NCCL the one it issued last,
// because hosts go on; otherwise the one in which it waits. kNoCall: it waits in none.
std::uint32_t newest_call(const Context& context, std::uint32_t rank);

// Whether by the past a call is usual at its position; no: only others are; unknown: the past does
// not tell.
enum class Usual : std::uint8_t { yes, no, unknown };
Usual is_usual(const Context& context, CallRef call);

// Where a rank broke with its own past: a call among its newest that was not usual there.
struct Break {
  std::uint32_t rank = 0;   // rank index
  std::uint32_t call = 0;   // the first such call
  std::uint32_t usual = 0;  // the earlier call that its past predicts there
};

// Where some of the ranks broke with their past while the others went on as usual. Empty where the
// past of any of them does not tell. O(ranks · 64) times the cost of is_usual().
std::vector<Break> breaks_with_the_past(const Context& context,
                                        const std::vector<std::uint32_t>& ranks);

// Sisters: ranks with the same group rank in another group of equal size. The pipelines of a mesh,
// for example, exchange the same messages side by side, so one shows what another should do.

// Whether ranks of other groups of equal size make calls like this one, so that it belongs to the
// program. O(calls).
bool is_made_in_sister_groups(const Context& context, CallRef call);

// In a cycle of messages: the ranks whose messages differ from their sisters', while all others did
// as theirs. Empty where a rank has no sister or its sisters disagree. O(calls).
std::vector<std::uint32_t> part_from_sisters(const Context& context,
                                             const std::vector<std::size_t>& points);

}  // namespace lockstep::verify
