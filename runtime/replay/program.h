// The program of a recorded run: what each rank called, with which sizes, when it waited and how it
// ended, and nothing of how that went. A program is a Run again, so that it is kept in the trace
// format, judged like any trace, and played by real processes (the strategy `replay`).
//
//   Result<Run> program = replay_program(std::move(run), {});
//
// What becomes of a trace:
//
// - Calls keep group, operation, shapes, type, reduce operation, root, peer, tag, splits, whether
//   they are asynchronous, and what the reports name: parameters, source place, step, free text. A
//   field that one member of a meeting did not record is taken from another; where none did, the
//   type is float32, the reduction a sum and the root the group's first member, on all of them.
// - Waits stay where they were. Calls of one batch are issued together and waited for behind it.
//   Recorders that see the device instead of the host record no waits (Flight Recorder): there a
//   rank waits for its oldest unfinished call before it calls in another group, as the device
//   would have, and at its end for all its calls.
// - Of marks, steps, modalities and stand-ins of remedies stay: the reports name them.
// - A rank ends as recorded: clean, by its exception, killed, or standing where it hung. A trace
//   without end mark is that of a rank that was killed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "base/result.h"
#include "trace/run.h"

namespace lockstep::runtime {

// One process a rank, on one machine.
inline constexpr std::int32_t kMaxReplayRanks = 64;
// Of one rank; what a replay records of them stays below 128 MiB.
inline constexpr std::size_t kMaxReplayCalls = 200'000;

struct ProgramOptions {
  // Nothing was wrong with the run: whoever is said to have hung or been killed was only looked at.
  bool ends_well = false;
  // Only so many calls of each rank, the last ones; 0: all. More where the ranks' calls would not
  // fit together otherwise, or a step would be torn (kept_calls.h).
  std::size_t last = 0;
  // Tensors of more elements shrink to this many or fewer; equal sizes stay equal, and different
  // ones different (sizes.h). 0: as recorded.
  std::int64_t max_elements = 0;
};

// `recorded` as a program; of a program, itself. O(events).
// Errors: what is not known of a rank, a call or a group that would have to be, and what Gloo has
// no call for; each with the trace and the call.
Result<trace::Run> replay_program(trace::Run recorded, const ProgramOptions& options = {});

// Who is in a group, by a rank's own trace.

// Null: the trace does not declare the group.
inline const trace::RankList* find_members(const trace::RankTrace& trace, trace::GroupId group) {
  const auto found = std::find_if(trace.groups.begin(), trace.groups.end(),
                                  [&](const auto& g) { return g.group == group; });
  return found == trace.groups.end() ? nullptr : &found->ranks;
}

// Of a program (program.h), which declares all groups that it calls in.
inline const trace::RankList& members_of(const trace::RankTrace& trace, trace::GroupId group) {
  const trace::RankList* const members = find_members(trace, group);
  LOCKSTEP_CHECK(members != nullptr, "a program declares its groups");
  return *members;
}

}  // namespace lockstep::runtime
