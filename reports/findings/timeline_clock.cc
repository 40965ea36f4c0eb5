#include "reports/findings/timeline_clock.h"

#include <algorithm>
#include <cstdint>
#include <map>

#include "base/text.h"

namespace lockstep {
namespace {

constexpr Nanos kLatest = INT64_MAX / 4;  // 73 years; what is later has room for arithmetic

bool has_time(const Event& event) { return event.time >= 0; }

// The first time of each host.
std::map<std::string, Nanos> host_starts(const Run& run) {
  std::map<std::string, Nanos> starts;
  for (const RankTrace& trace : run.ranks) {
    for (const Event& event : trace.events) {
      if (!has_time(event)) continue;
      const auto [start, fresh] = starts.try_emplace(trace.host, event.time);
      if (!fresh) start->second = std::min(start->second, event.time);
    }
  }
  return starts;
}

std::vector<Nanos> ordinal_times(const RankTrace& trace) {
  std::vector<Nanos> times(trace.events.size());
  for (std::size_t i = 0; i < times.size(); ++i) times[i] = static_cast<Nanos>(i) * kOrdinalStep;
  return times;
}

std::vector<Nanos> recorded_times(const RankTrace& trace, Nanos start, std::uint64_t& filled) {
  std::vector<Nanos> times;
  times.reserve(trace.events.size());
  const auto first = std::find_if(trace.events.begin(), trace.events.end(), has_time);
  Nanos now = first == trace.events.end() ? 0 : std::min(first->time - start, kLatest);
  for (const Event& event : trace.events) {
    if (has_time(event))
      now = std::min(event.time - start, kLatest);
    else
      ++filled;
    times.push_back(now);
  }
  return times;
}

}  // namespace

TimelineClock timeline_clock(const Run& run) {
  TimelineClock clock;
  const std::map<std::string, Nanos> starts = host_starts(run);
  clock.ordinal = starts.empty();
  clock.hosts = starts.size();
  for (const RankTrace& trace : run.ranks) {
    const auto found = starts.find(trace.host);
    const Nanos start = found == starts.end() ? 0 : found->second;
    clock.start.push_back(start);
    clock.times.push_back(clock.ordinal ? ordinal_times(trace)
                                        : recorded_times(trace, start, clock.filled));
    const std::vector<Nanos>& times = clock.times.back();
    clock.last.push_back(times.empty() ? 0 : *std::max_element(times.begin(), times.end()));
  }
  return clock;
}

std::string describe(const TimelineClock& clock) {
  if (clock.ordinal) {
    return "ordinal: no times were recorded, so every event takes one microsecond in its rank's "
           "program order; lengths mean nothing, and ranks are not aligned";
  }
  std::string out = "recorded";
  if (clock.hosts > 1) {
    out += "; " + std::to_string(clock.hosts) +
           " hosts, whose clocks are not aligned: each starts at its own first event";
  }
  if (clock.filled > 0) {
    out += "; " + plural(clock.filled, "event") + " without a time took that of the one before";
  }
  return out;
}

}  // namespace lockstep
