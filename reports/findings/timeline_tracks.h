// The slices of a timeline: what each rank did and when, on tracks whose slices never overlap, as
// trace viewers require.
//
// A rank has a track "host" (its own spans and its waits), one for each stream or group in which it
// made collectives, and one for the messages of each group. The operations of a stream run in
// order, so a slice begins when the rank issued the call, or when the operation before it ended.
// Slices that still overlap go to another track of the same name. A wait that took no time is left
// out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/run.h"

namespace lockstep::reports {

// TimelineClock: a time for every event, whatever was recorded.
//
// - Recorded times count from the first one of each host: the clocks of two hosts are unrelated.
// - An event without a time gets that of the event before it.
// - If no event of the run has a time (derivations, programs), each event takes one microsecond, in
//   program order. The picture then shows an order, not durations.

// The length of an event in ordinal time.
inline constexpr trace::Nanos kOrdinalStep = 1000;

struct TimelineClock {
  std::vector<std::vector<trace::Nanos>> times;  // by rank index and event; never negative
  std::vector<trace::Nanos> last;                // by rank index: the latest
  std::vector<trace::Nanos> start;               // by rank index: the recorded time that is 0 here
  bool ordinal = false;
  std::uint64_t filled = 0;  // events without a time in a run where others have one
  std::size_t hosts = 0;     // clocks
};

// O(events).
TimelineClock timeline_clock(const trace::Run& run);

// How to read the times, in one sentence.
std::string describe(const TimelineClock& clock);

struct TimelineSlice {
  enum class Kind : std::uint8_t { call, wait, span } kind = Kind::call;
  bool finished = true;     // false: it had not ended when the trace did
  std::uint32_t index = 0;  // into RankTrace::calls (call, wait) or spans
  std::uint32_t track = 0;  // into TimelineRank::tracks
  trace::Nanos begin = 0;
  trace::Nanos end = 0;     // > begin
  trace::Nanos issued = 0;  // of a call: when the rank issued it
};

struct TimelineRank {
  std::vector<std::string> tracks;  // names, as in the trace
  std::vector<TimelineSlice> slices;
};

// The part of a rank's trace that is shown.
struct TimelinePart {
  static constexpr std::uint32_t kNowhere = UINT32_MAX;

  std::size_t first = 0, last = SIZE_MAX;  // events [first, last)
  std::uint32_t stuck_in = kNowhere;       // the call that it never leaves
};

// The slices of that part. `times`: of all events. `shortest`, above 0: the shown length of what
// took no time or ended at an unknown time. `end`: until when unfinished slices last; at least the
// rank's last time. O(events log events).
TimelineRank timeline_of(const trace::RankTrace& trace, const trace::Tables& tables,
                         const std::vector<trace::Nanos>& times, const TimelinePart& part,
                         trace::Nanos shortest, trace::Nanos end);

}  // namespace lockstep::reports
