// The message level: every message of a collective is an event, on links that are shared fairly.
//
// A message takes alpha, then its bytes flow, then, if the receiver reduces, bytes/gamma. It
// occupies its lane all the time and its links only while bytes flow. Messages that use a link at
// the same time share it max-min fairly (sim/messages/links.h); their rates change when one begins
// or ends. A message alone on its links takes one event, its arrival. Only when a second message
// comes to one of them do both get separate events for the begin and the end of their flows.
//
// Time is counted in ticks. A tick is a fraction of a picosecond, chosen so that every message
// alone takes a whole number of ticks wherever that fits: a chunk of B/n bytes is not rounded. A
// shared flow ends at the tick nearest to the exact time.
#pragma once

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
  std::vector<std::int64_t>
      ranks;  // the schedule's rank i is ranks[i] of the fabric; empty: rank i
  Picos start;
};

struct MessageResult {
  std::vector<Picos> finished;  // by job: when its last message arrived
  std::uint64_t messages = 0;
  std::uint64_t shared = 0;  // messages that shared a link with another
};

// Runs all jobs to their ends. `horizon`: a rough upper bound of the time, for choosing the tick.
// Errors: a job that takes more than 2^60 ticks; a size that is too large to count. Without sharing
// O(messages · log lanes); each change of a shared link adds the cost of sharing again among all
// messages that are connected to it through common links.
Result<MessageResult> run_messages(const Fabric& fabric, std::vector<MessageJob> jobs,
                                   Picos horizon);

// Collectives message by message: the second way to compute their times, which also knows what
// shares a link.

enum class Wiring : std::uint8_t {
  ports,  // each rank has one port per level, with the same bandwidth out and in
  pairs,  // each ordered pair of ranks has its own link
};

// More messages than this are refused: they would take minutes.
inline constexpr std::uint64_t kMaxMessages = 2'000'000'000;

// Runs all `collectives` at once, over the same ranks and links. `collectives` is not empty;
// hierarchical ones agree in ranks_per_node. For one collective whose messages share no link, the
// time equals closed_form()'s to the picosecond: ring, recursive_doubling, halving_doubling,
// hierarchical, direct, binomial and chain; double_binary_tree with Wiring::pairs. Errors:
// check()'s; nvls, which has no messages; more than kMaxMessages; too long or too large.
Result<MessageResult> message_level(std::span<const Collective> collectives, const Links& links,
                                    Wiring wiring);

}  // namespace lockstep::sim
