// When things happened, for a timeline: one time for every event, whatever was recorded.
//
// - Recorded times count from the first one of each host: the clocks of two hosts have nothing in
//   common.
// - An event without a time takes that of the one before it.
// - Where no event of the run has a time (derivations, programs), each takes one microsecond, in
//   program order: the picture then shows an order and no durations.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/run.h"

namespace lockstep {

// In ordinal time, of every event.
inline constexpr Nanos kOrdinalStep = 1000;

struct TimelineClock {
  std::vector<std::vector<Nanos>> times;  // by rank index and event; never negative
  std::vector<Nanos> last;                // by rank index: the latest
  std::vector<Nanos> start;               // by rank index: which recorded time is 0 here
  bool ordinal = false;
  std::uint64_t filled = 0;  // events without a time, where others have one
  std::size_t hosts = 0;     // clocks
};

// O(events).
TimelineClock timeline_clock(const Run& run);

// What a reader of the times must know, in one sentence.
std::string describe(const TimelineClock& clock);

}  // namespace lockstep
