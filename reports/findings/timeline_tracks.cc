#include "reports/findings/timeline_tracks.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "trace/groups.h"

namespace lockstep::reports {
namespace {

// The tracks of one name, by the end of the last slice on each, to find one that is free.
struct Lanes {
  std::multimap<trace::Nanos, std::uint32_t> ends;  // last end to track
};

class TrackLayout {
 public:
  TrackLayout(TimelineRank& out, trace::Nanos shortest) : out_(out), shortest_(shortest) {
    track("host", 0);
  }

  // Places a slice of an in-order stream: on the track whose last slice ends latest before `end`.
  // The slice begins no earlier than that one ends, since operations of a stream run one after the
  // other. A new track if none ends before the slice does.
  void in_order(const std::string& name, TimelineSlice slice) {
    Lanes& lanes = lanes_[name];
    auto lane = lanes.ends.upper_bound(slice.end - shortest_);
    if (lane == lanes.ends.begin()) {
      slice.track = track(name, lanes.ends.size());
    } else {
      --lane;
      slice.begin = std::max(slice.begin, lane->first);
      slice.track = lane->second;
      lanes.ends.erase(lane);
    }
    put(lanes, slice);
  }

  // Places a slice on a track that is free when it begins, else on a new one.
  void apart(const std::string& name, TimelineSlice slice) {
    Lanes& lanes = lanes_[name];
    const auto lane = lanes.ends.begin();
    if (lane == lanes.ends.end() || lane->first > slice.begin) {
      slice.track = track(name, lanes.ends.size());
    } else {
      slice.track = lane->second;
      lanes.ends.erase(lane);
    }
    put(lanes, slice);
  }

 private:
  void put(Lanes& lanes, const TimelineSlice& slice) {
    lanes.ends.emplace(slice.end, slice.track);
    out_.slices.push_back(slice);
  }

  std::uint32_t track(const std::string& name, std::size_t lane) {
    // "host", "host (2)", "host (3)".
    const std::string full = lane == 0 ? name : fmt::format("{} ({})", name, lane + 1);
    const auto [found, fresh] =
        tracks_.try_emplace({name, lane}, static_cast<std::uint32_t>(out_.tracks.size()));
    if (fresh) out_.tracks.push_back(full);
    return found->second;
  }

  TimelineRank& out_;
  trace::Nanos shortest_;
  std::map<std::string, Lanes> lanes_;
  std::map<std::pair<std::string, std::size_t>, std::uint32_t> tracks_;
};

trace::Nanos plus(trace::Nanos time, trace::Nanos length) {
  return time > std::numeric_limits<trace::Nanos>::max() - length
             ? std::numeric_limits<trace::Nanos>::max()
             : time + length;
}

// Groups by what people call them, each looked up once.
class TrackNames {
 public:
  TrackNames(const trace::RankTrace& trace, const trace::Tables& tables)
      : trace_(trace), tables_(tables) {}

  std::string of(const trace::Call& call) {
    if (call.stream.value != 0) return fmt::format("stream {}", tables_.str(call.stream));
    const auto [label, fresh] = labels_.try_emplace(call.group);
    if (fresh) label->second = trace::group_label(trace_, tables_, call.group);
    return tables_.is_message(call) ? fmt::format("{} messages", label->second) : label->second;
  }

 private:
  const trace::RankTrace& trace_;
  const trace::Tables& tables_;
  std::map<trace::GroupId, std::string> labels_;
};

struct CallTimes {
  trace::Nanos issued = trace::kNoTime, started = trace::kNoTime, completed = trace::kNoTime,
               waits = trace::kNoTime, waited = trace::kNoTime;
};

void read_event(const trace::Event& event, trace::Nanos time, std::vector<CallTimes>& calls) {
  switch (event.kind) {
    case trace::EventKind::issue:
      calls[event.index].issued = time;
      break;
    case trace::EventKind::start:
      calls[event.index].started = time;
      break;
    case trace::EventKind::complete:
      calls[event.index].completed = time;
      break;
    case trace::EventKind::wait:
      calls[event.index].waits = time;
      break;
    case trace::EventKind::waited:
      calls[event.index].waited = time;
      break;
    default:
      break;
  }
}

// When the call ended, as far as is known: its completion; else when the rank's wait ended; else,
// in a source that records no completions, only that the rank went on.
struct CallEnd {
  trace::Nanos time = 0;
  bool finished = true;
};
CallEnd end_of(const trace::Call& call, const CallTimes& at, bool records_ends,
               trace::End trace_end, trace::Nanos never) {
  if (at.completed != trace::kNoTime) return {at.completed, true};
  if (at.waited != trace::kNoTime) return {at.waited, true};
  // Unfinished only if the source would have recorded the end, or the rank is waiting for it.
  const bool open = trace_end != trace::End::clean && (records_ends || call.has(trace::kWaitBegan));
  return open ? CallEnd{never, false} : CallEnd{at.issued, true};
}

using OnStream = std::pair<std::string, TimelineSlice>;  // the track's name

TimelineSlice slice_of(const trace::SpanMark& span, std::uint32_t index, trace::Nanos time,
                       trace::Nanos shortest) {
  return {.kind = TimelineSlice::Kind::span,
          .index = index,
          .begin = time,
          .end = plus(time, std::max(span.duration, shortest)),
          .issued = time};
}

TimelineSlice slice_of(const CallTimes& at, std::uint32_t index, const CallEnd& finish,
                       trace::Nanos shortest) {
  const trace::Nanos begin = at.started == trace::kNoTime ? at.issued : at.started;
  return {.kind = TimelineSlice::Kind::call,
          .finished = finish.finished,
          .index = index,
          .begin = begin,
          .end = std::max(finish.time, plus(begin, shortest)),
          .issued = at.issued};
}

// The rank's wait for the call; empty if it took no time.
std::optional<TimelineSlice> wait_of(const CallTimes& at, std::uint32_t index,
                                     const CallEnd& finish, trace::Nanos shortest) {
  const bool let_go = at.waited != trace::kNoTime;
  if (at.waits == trace::kNoTime || at.waited == at.waits) return std::nullopt;
  return TimelineSlice{.kind = TimelineSlice::Kind::wait,
                       .finished = let_go || finish.finished,
                       .index = index,
                       .begin = at.waits,
                       .end = std::max(let_go ? at.waited : finish.time, plus(at.waits, shortest)),
                       .issued = at.waits};
}

}  // namespace

TimelineRank timeline_of(const trace::RankTrace& trace, const trace::Tables& tables,
                         const std::vector<trace::Nanos>& times, const TimelinePart& part,
                         trace::Nanos shortest, trace::Nanos end) {
  TimelineRank out;
  TrackLayout layout(out, shortest);
  std::vector<TimelineSlice> on_host;
  std::vector<OnStream> on_streams;
  std::vector<CallTimes> calls(trace.calls.size());
  for (std::size_t e = part.first; e < std::min(part.last, trace.events.size()); ++e) {
    const trace::Event& event = trace.events[e];
    read_event(event, times[e], calls);
    if (event.kind != trace::EventKind::span) continue;
    const trace::SpanMark& span = trace.spans[event.index];
    // A simulation keeps that a remedy stood in; what that took is part of the step's other work.
    if (span.duration == 0 && tables.str(span.name).starts_with(trace::kRemedySpan)) continue;
    const TimelineSlice slice = slice_of(span, event.index, times[e], shortest);
    if (span.stream.value == 0)
      on_host.push_back(slice);
    else
      on_streams.emplace_back(fmt::format("stream {}", tables.str(span.stream)), slice);
  }
  const bool records_ends =
      std::any_of(trace.calls.begin(), trace.calls.end(),
                  [](const trace::Call& call) { return call.has(trace::kCompleted); });
  TrackNames names(trace, tables);
  for (std::uint32_t c = 0; c < trace.calls.size(); ++c) {
    if (calls[c].issued == trace::kNoTime) continue;  // not in this part
    const CallEnd finish = c == part.stuck_in
                               ? CallEnd{end, false}
                               : end_of(trace.calls[c], calls[c], records_ends, trace.end, end);
    on_streams.emplace_back(names.of(trace.calls[c]), slice_of(calls[c], c, finish, shortest));
    if (const auto wait = wait_of(calls[c], c, finish, shortest)) on_host.push_back(*wait);
  }
  // By begin, which the greedy placement on tracks needs; stable, so that equal begins keep the
  // order of the trace.
  std::stable_sort(on_host.begin(), on_host.end(),
                   [](const auto& a, const auto& b) { return a.begin < b.begin; });
  for (const TimelineSlice& slice : on_host) layout.apart("host", slice);
  std::stable_sort(on_streams.begin(), on_streams.end(),
                   [](const auto& a, const auto& b) { return a.second.begin < b.second.begin; });
  for (const auto& [name, slice] : on_streams) layout.in_order(name, slice);
  return out;
}

namespace {

constexpr trace::Nanos kLatest = INT64_MAX / 4;  // 73 years, which leaves room for sums

bool has_time(const trace::Event& event) { return event.time >= 0; }

// The first time of each host.
std::map<std::string, trace::Nanos> host_starts(const trace::Run& run) {
  std::map<std::string, trace::Nanos> starts;
  for (const trace::RankTrace& trace : run.ranks) {
    for (const trace::Event& event : trace.events) {
      if (!has_time(event)) continue;
      const auto [start, fresh] = starts.try_emplace(trace.host, event.time);
      if (!fresh) start->second = std::min(start->second, event.time);
    }
  }
  return starts;
}

std::vector<trace::Nanos> ordinal_times(const trace::RankTrace& trace) {
  std::vector<trace::Nanos> times(trace.events.size());
  for (std::size_t i = 0; i < times.size(); ++i)
    times[i] = static_cast<trace::Nanos>(i) * kOrdinalStep;
  return times;
}

std::vector<trace::Nanos> recorded_times(const trace::RankTrace& trace, trace::Nanos start,
                                         std::uint64_t& filled) {
  std::vector<trace::Nanos> times;
  times.reserve(trace.events.size());
  const auto first = std::find_if(trace.events.begin(), trace.events.end(), has_time);
  trace::Nanos now = first == trace.events.end() ? 0 : std::min(first->time - start, kLatest);
  for (const trace::Event& event : trace.events) {
    if (has_time(event))
      now = std::min(event.time - start, kLatest);
    else
      ++filled;
    times.push_back(now);
  }
  return times;
}

}  // namespace

TimelineClock timeline_clock(const trace::Run& run) {
  TimelineClock clock;
  const std::map<std::string, trace::Nanos> starts = host_starts(run);
  clock.ordinal = starts.empty();
  clock.hosts = starts.size();
  for (const trace::RankTrace& trace : run.ranks) {
    const auto found = starts.find(trace.host);
    const trace::Nanos start = found == starts.end() ? 0 : found->second;
    clock.start.push_back(start);
    clock.times.push_back(clock.ordinal ? ordinal_times(trace)
                                        : recorded_times(trace, start, clock.filled));
    const std::vector<trace::Nanos>& times = clock.times.back();
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
    out +=
        fmt::format("; {} hosts, whose clocks are not aligned: each starts at its own first event",
                    clock.hosts);
  }
  if (clock.filled > 0) {
    out += fmt::format("; {} without a time took that of the one before",
                       plural(clock.filled, "event"));
  }
  return out;
}

}  // namespace lockstep::reports
