// The message level: every message of a collective as an event, on links that are shared fairly.
//
// A message takes alpha, then its bytes flow, then, where the receiver reduces, bytes/gamma; its
// lane is busy all the while, its links only while bytes flow. Messages that use a link at the same
// time share it max-min fairly (sim/messages/links.h), and their rates change when one begins or
// ends. A message that has its links to itself takes one event: when it arrives. Only when a second
// one comes while it is under way do both get events of their own for the beginning and the end of
// the flow.
//
// Time is counted in ticks, fractions of a picosecond that are chosen such that every message alone
// takes a whole number of them wherever that fits: a chunk of B/n bytes is not rounded. What is
// shared ends at the tick nearest to the exact time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/quantities.h"
#include "base/result.h"
#include "sim/collectives/collective.h"
#include "sim/messages/links.h"
#include "sim/messages/schedules.h"

namespace lockstep::sim {

struct MessageJob {
  std::unique_ptr<Schedule> schedule;
  std::vector<std::int64_t> ranks;  // where schedule's rank i is in the fabric; empty: rank i
  Picos start;
};

struct MessageResult {
  std::vector<Picos> finished;  // of each job: when its last message arrived
  std::uint64_t messages = 0;
  std::uint64_t shared = 0;  // messages that shared a link with another
};

// Runs all jobs to their ends. `horizon`: about how long that takes, for choosing the tick; what
// turns out longer than 2^60 ticks is an error, as is a size too large to be counted.
// O(messages · log lanes) without sharing; each change of sharing costs what the messages cost that
// it concerns, directly or through links in common.
Result<MessageResult> run_messages(const Fabric& fabric, std::vector<MessageJob> jobs,
                                   Picos horizon);

// Collectives message by message: the second way to their times, which knows what shares a link.

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
