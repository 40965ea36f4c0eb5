// Collectives message by message: the second way to their times, which knows what shares a link.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "sim/collectives/collective.h"
#include "sim/messages/message_engine.h"

namespace lockstep::sim {

enum class Wiring : std::uint8_t {
  ports,  // each rank has one port on each level, the same bandwidth outward and inward
  pairs,  // each ordered pair of ranks has a link of its own
};

// More messages than this are refused: they take minutes.
inline constexpr std::uint64_t kMostMessages = 2'000'000'000;

// Runs all `collectives` at once, over the same ranks and links. With one collective, and where no
// link is shared (ring, recursive_doubling, halving_doubling, hierarchical, direct, binomial and
// chain; double_binary_tree with Wiring::pairs), the time is closed_form()'s to the picosecond.
// `collectives` is not empty; those that are hierarchical agree in ranks_per_node.
// Errors: check()'s; nvls, which has no messages; more than kMostMessages; too long or too large.
Result<MessageResult> message_level(std::span<const Collective> collectives, const Links& links,
                                    Wiring wiring);

}  // namespace lockstep::sim
