// The slices of a timeline: what each rank did from when to when, laid on tracks so that the slices
// of one track never overlap, as trace viewers need it.
//
// A rank has the track "host" (spans of its own, and its waits), one for each stream or group in
// which it made collectives, and one for the messages of each group. The operations of a stream run
// in order, so that a slice begins when the rank issued the call, or when the one before it ended.
// What still overlaps goes to a further track of the same name. A wait that took no time is left
// out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/run.h"

// When things happened, for a timeline: one time for every event, whatever was recorded.
//
// - Recorded times count from the first one of each host: the clocks of two hosts have nothing in
//   common.
// - An event without a time takes that of the one before it.
// - Where no event of the run has a time (derivations, programs), each takes one microsecond, in
//   program order: the picture then shows an order and no durations.

namespace lockstep::reports {

// In ordinal time, of every event.
inline constexpr trace::Nanos kOrdinalStep = 1000;

struct TimelineClock {
  std::vector<std::vector<trace::Nanos>> times;  // by rank index and event; never negative
  std::vector<trace::Nanos> last;                // by rank index: the latest
  std::vector<trace::Nanos> start;               // by rank index: which recorded time is 0 here
  bool ordinal = false;
  std::uint64_t filled = 0;  // events without a time, where others have one
  std::size_t hosts = 0;     // clocks
};

// O(events).
TimelineClock timeline_clock(const trace::Run& run);

// What a reader of the times must know, in one sentence.
std::string describe(const TimelineClock& clock);

struct TimelineSlice {
  enum class Kind : std::uint8_t { call, wait, span } kind = Kind::call;
  bool finished = true;     // false: it was under way when the trace ended
  std::uint32_t index = 0;  // into RankTrace::calls (call, wait) or spans
  std::uint32_t track = 0;  // into TimelineRank::tracks
  trace::Nanos begin = 0;
  trace::Nanos end = 0;     // > begin
  trace::Nanos issued = 0;  // of a call: when the rank came to it
};

struct TimelineRank {
  std::vector<std::string> tracks;  // names, as they came from the trace
  std::vector<TimelineSlice> slices;
};

// What of a rank's trace is shown.
struct TimelinePart {
  static constexpr std::uint32_t kNowhere = UINT32_MAX;

  std::size_t first = 0, last = SIZE_MAX;  // events [first, last)
  std::uint32_t stuck_in = kNowhere;       // the call from which it never comes back
};

// The slices of that part. `times`: of all its events. `shortest`: how long what took no time, or
// ended at a time that nobody recorded, is shown to last; above 0. `end`: how long what never
// finished goes on; at least the rank's last time. O(events log events).
TimelineRank timeline_of(const trace::RankTrace& trace, const trace::Tables& tables,
                         const std::vector<trace::Nanos>& times, const TimelinePart& part,
                         trace::Nanos shortest, trace::Nanos end);

}  // namespace lockstep::reports
