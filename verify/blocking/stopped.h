// What the reader of a report needs first about ranks that stopped: who, on which host, how long
// ago, before which call of which group, at which line of the program, how many ranks wait, and the
// command that shows where the process is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "verify/context.h"

namespace lockstep::verify {

// The ranks that a call still lacks: they never issued it, or their devices have not begun it.
std::vector<std::uint32_t> lacked_by(const WaitPoint& point);

// The ranks without a trace that a call may lack: members of its group, or the other side of a
// message. Ascending.
std::vector<trace::Rank> absent_at(const Context& context, const WaitPoint& point);

// Wait points by their distance to `culprits` (rank indices): first those that lack one of them,
// then those that lack a rank that waits there, and so on; of equal distance in the given order.
// O(points · their ranks · longest distance).
std::vector<std::size_t> by_distance(const Context& context,
                                     const std::vector<std::uint32_t>& culprits,
                                     const std::vector<std::size_t>& points);

// Which of the calls comes first in the program. `points`: at least one, all of which lack the same
// ranks. Where steps are known, the earliest step decides. Otherwise a rank that waits in one call
// shows it, if it issued the other one before (or the call of a sister group at the same index).
// Otherwise the call in which most ranks wait is taken.
std::size_t first_missed(const Context& context, const std::vector<std::size_t>& points);

// The first call of a point's group that a rank never issued, as another rank issued it. Ranks that
// wait for asynchronous calls may wait in a later one:
//
//   rank 0   a b c d, waits for d
//   rank 1   a                       its first missed call is b
//
// For a message the waiting rank's call.
struct MissedCall {
  CallRef call;
  std::uint64_t seq = 0;
};
// `ranks`: rank indices; the one that got least far counts.
MissedCall missed_call(const Context& context, const std::vector<std::uint32_t>& ranks,
                       const WaitPoint& point);

// The ranks that wait at these points, directly and through others; rank indices, ascending.
std::vector<std::uint32_t> all_waiting(const Context& context,
                                       const std::vector<std::size_t>& points);

// Who stopped, and where.
struct Stopped {
  std::vector<trace::Rank> ranks;  // sorted, at least one; with a trace or all without
  std::string verb;                // "stopped", "was killed"
  bool alive = false;              // the processes may still be there
  std::size_t point = 0;           // the wait point that lacks them
  MissedCall missed;               // the first call of its group that they lack
  std::size_t waiting = 0;         // how many ranks wait, directly or through others
};

// Sets the finding's headline, next command and direct waiters. Leaves out what is not known.
// O(events), for the time.
void tell_stopped(const Context& context, const Stopped& stopped, Finding& finding);

}  // namespace lockstep::verify
