// The program of a recorded run: what each rank called, with which sizes, when it waited and how it
// ended, but not what came of it. A program is a Run as well, so it is stored in the trace format,
// judged like any trace, and played by real processes (the key `replay`).
//
//   Result<Run> program = replay_program(std::move(run), {});
//
// How a trace is converted:
//
// - Calls keep group, operation, shapes, type, reduce operation, root, peer, tag, splits, whether
//   they are asynchronous, and what reports name: parameters, source location, step, free text. A
//   field that one member of a collective did not record is taken from another. If none did, the
//   type is float32, the reduction a sum and the root the group's first member, on all of them.
// - Waits stay where they were. Calls of one batch are issued together and waited for after it.
//   Recorders that see the device instead of the host record no waits (Flight Recorder). There a
//   rank waits for its oldest unfinished call before it calls in another group, as the device
//   would have, and at its end for all its calls.
// - Of the marks, steps, modalities and dummies of remedies are kept, because reports name them.
// - A rank ends as recorded: clean, by its exception, killed, or blocked where it hung. A trace
//   without an end mark is treated as that of a killed rank.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "base/result.h"
#include "trace/run.h"

namespace lockstep::runtime {

// One process per rank, on one machine.
inline constexpr std::int32_t kMaxReplayRanks = 64;
// Calls of one rank. What a replay records of them stays below 128 MiB.
inline constexpr std::size_t kMaxReplayCalls = 200'000;

struct ProgramOptions {
  // Nothing was wrong with the run. Ranks that are marked as hung or killed were only observed
  // while they ran.
  bool ends_well = false;
  // Keep only the last calls of each rank, this many; 0: all. More are kept if the ranks' calls
  // would not match each other otherwise, or a step would be split (kept_calls.h).
  std::size_t last = 0;
  // Tensors with more elements shrink to at most this many; equal sizes stay equal, different sizes
  // stay different (sizes.h). 0: as recorded.
  std::int64_t max_elements = 0;
};

// Converts `recorded` to a program; a program is returned unchanged. O(events). Errors: something
// about a rank, a call or a group that is needed and not known, and calls that Gloo does not have;
// each with the trace and the call.
Result<trace::Run> replay_program(trace::Run recorded, const ProgramOptions& options = {});

// The members of a group, by a rank's own trace.

// Null: the trace does not declare the group.
inline const trace::RankList* find_members(const trace::RankTrace& trace, trace::GroupId group) {
  const auto found = std::find_if(trace.groups.begin(), trace.groups.end(),
                                  [&](const auto& g) { return g.group == group; });
  return found == trace.groups.end() ? nullptr : &found->ranks;
}

// For a program, which declares all groups that it uses.
inline const trace::RankList& members_of(const trace::RankTrace& trace, trace::GroupId group) {
  const trace::RankList* const members = find_members(trace, group);
  LOCKSTEP_CHECK(members != nullptr, "a program declares its groups");
  return *members;
}

}  // namespace lockstep::runtime
