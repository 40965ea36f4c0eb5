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
#include <vector>

#include "base/quantities.h"
#include "base/result.h"
#include "sim/messages/links.h"
#include "sim/messages/schedule.h"

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

}  // namespace lockstep::sim
