#include "reports/findings/timeline_report.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/quantities.h"
#include "base/tables.h"
#include "base/text.h"
#include "base/tool_version.h"
#include "reports/findings/figures/matched_calls.h"
#include "reports/findings/figures/wait_picture.h"
#include "reports/findings/finding_words.h"
#include "reports/findings/timeline_tracks.h"
#include "reports/json_text.h"
#include "verify/replay/replay.h"
#include "verify/streams/agreement.h"
#include "verify/streams/streams.h"

namespace lockstep::reports {
namespace {

using Json = nlohmann::ordered_json;

bool is_entry(const trace::Event& event) {
  return event.kind == trace::EventKind::issue || event.kind == trace::EventKind::span ||
         event.kind == trace::EventKind::step;
}

std::uint64_t entries_of(const trace::RankTrace& trace) {
  return static_cast<std::uint64_t>(
      std::count_if(trace.events.begin(), trace.events.end(), is_entry));
}

// Index of the event at which the last `most` entries of the trace begin.
std::size_t begin_of_last(const trace::RankTrace& trace, std::uint64_t most) {
  std::size_t first = trace.events.size();
  for (std::uint64_t entries = 0; first > 0; --first) {
    if (is_entry(trace.events[first - 1]) && entries++ == most) break;
  }
  return first;
}

// Index of the event with which a rank enters the call that it never leaves: its wait for the call,
// or else its issue.
std::size_t entering(const trace::RankTrace& trace, std::uint32_t call) {
  std::size_t out = trace.events.size();
  for (std::size_t e = 0; e < trace.events.size(); ++e) {
    const trace::Event& event = trace.events[e];
    const bool enters =
        event.kind == trace::EventKind::issue || event.kind == trace::EventKind::wait;
    if (enters && event.index == call) out = e;
  }
  return out;
}

// What is shown of each rank: all of its events, or its last entries.
struct Shown {
  std::vector<TimelinePart> parts;  // by rank index
  std::uint64_t left_out = 0;       // entries
};

Shown choose_shown(const trace::Run& run, const TimelineOptions& options) {
  Shown out{std::vector<TimelinePart>(run.ranks.size()), 0};
  // A program that never ran contains all calls; show it only as far as some schedule can go.
  if (!verify::was_recorded(run)) {
    verify::Agreement agreement(run.tables);
    const verify::ReplayResult end =
        replayed(run, verify::group_streams(run), agreement, options.semantics, false);
    for (std::size_t r = 0; r < run.ranks.size(); ++r) {
      if (end.positions[r].blocked == verify::kNoCall) continue;
      out.parts[r].stuck_in = end.positions[r].blocked;
      out.parts[r].last = entering(run.ranks[r], end.positions[r].blocked) + 1;
    }
  }
  const std::uint64_t most = options.most_entries;
  std::uint64_t all = 0;
  for (const trace::RankTrace& trace : run.ranks) all += entries_of(trace);
  if (all <= most) return out;
  // The same number for every rank, so that the shown ends of all ranks overlap in time.
  const std::uint64_t each = std::max<std::uint64_t>(1, most / run.ranks.size());
  for (std::size_t r = 0; r < run.ranks.size(); ++r) {
    const std::uint64_t entries = entries_of(run.ranks[r]);
    out.parts[r].first = begin_of_last(run.ranks[r], each);
    out.left_out += entries - std::min(entries, each);
  }
  return out;
}

class TimelineWriter {
 public:
  TimelineWriter(const FilteredReport& filtered, const trace::Run& run,
                 const TimelineOptions& options)
      : filtered_(filtered),
        run_(run),
        clock_(timeline_clock(run)),
        matched_(match_calls(run)),
        shown_(choose_shown(run, options)),
        options_(options),
        shortest_(clock_.ordinal ? kOrdinalStep : 1) {
    for (std::size_t r = 0; r < run.ranks.size(); ++r) {
      const std::size_t last = shown_.parts[r].last;
      last_.push_back(last < clock_.times[r].size() ? clock_.times[r][last - 1] : clock_.last[r]);
      end_ = std::max(end_, last_.back());
    }
    // So that slices until the end have a length. A call that never ended is often the last thing
    // that was recorded: a twentieth of the picture lets it be seen.
    constexpr trace::Nanos kShareOfTheEnd = 20;
    const bool recorded = !clock_.ordinal && !options_.simulated;
    end_ += std::max(shortest_, recorded ? end_ / kShareOfTheEnd : 0);
  }

  std::string str() {
    for (std::size_t r = 0; r < run_.ranks.size(); ++r) rank(r);
    arrows();
    for (const TimelineCounter& one : options_.counters) counter(one);
    for (const verify::Finding& finding : filtered_.report.findings) this->finding(finding);
    // An event per line, written as it comes: a document of all of them would not fit into memory.
    return fmt::format(R"({{"displayTimeUnit":"ns",
"otherData":{},
"traceEvents":[
{}
]}}
)",
                       other_data(), events_.take());
  }

 private:
  std::string other_data() const {
    Json out;
    out["tool"] = tool_version();
    out["verdict"] = verify::to_string(filtered_.report.verdict);
    out["summary"] = verdict_in_words(filtered_.report);
    out["time"] = options_.simulated ? "simulated: one clock for all ranks" : describe(clock_);
    if (shown_.left_out > 0)
      out["left_out"] = fmt::format(
          "the first {} calls, spans and steps; each rank's last ones are "
          "here",
          grouped(shown_.left_out));
    return json_text(out);
  }

  void rank(std::size_t r) {
    const trace::RankTrace& trace = run_.ranks[r];
    // "rank 037" of 64: viewers sort processes by name.
    const std::size_t digits = fmt::formatted_size("{}", run_.ranks.back().rank.value);
    const std::string name = fmt::format("rank {:0{}}", trace.rank.value, digits);
    TimelineTrack track{r + 1, next_thread_};
    hosts_.push_back(track);
    events_.metadata("process_name", track, {{"name", name}});
    events_.metadata("process_sort_index", track, {{"sort_index", trace.rank.value}});
    const std::string label = clock_.ordinal ? "ordinal time" : trace.host;
    if (!label.empty()) events_.metadata("process_labels", track, {{"labels", printable(label)}});

    const TimelineRank lines =
        timeline_of(trace, run_.tables, clock_.times[r], shown_.parts[r], shortest_, end_);
    for (std::size_t t = 0; t < lines.tracks.size(); ++t) {
      track.thread = next_thread_ + t;
      events_.metadata("thread_name", track, {{"name", printable(lines.tracks[t])}});
      events_.metadata("thread_sort_index", track, {{"sort_index", t}});
    }
    for (const TimelineSlice& slice : lines.slices) {
      track.thread = next_thread_ + slice.track;
      this->slice(r, slice, track);
    }
    track.thread = next_thread_;
    instants(r, track);
    next_thread_ += lines.tracks.size();
  }

  void slice(std::size_t r, const TimelineSlice& slice, TimelineTrack track) {
    const trace::RankTrace& trace = run_.ranks[r];
    if (slice.kind == TimelineSlice::Kind::span) {
      const trace::SpanMark& span = trace.spans[slice.index];
      events_.slice(printable(run_.tables.str(span.name)), "span", track, slice.begin, slice.end,
                    Json::object());
      return;
    }
    const trace::Call& call = trace.calls[slice.index];
    const std::string name = printable(trace::describe(run_.tables, call));
    if (slice.kind == TimelineSlice::Kind::wait) {
      events_.slice(fmt::format("wait for {}", name), "wait", track, slice.begin, slice.end,
                    slice.finished ? Json::object() : Json::object({{"state", "never returned"}}));
      return;
    }
    events_.slice(slice.finished ? name : fmt::format("{} (unfinished)", name), "call", track,
                  slice.begin, slice.end, arguments(r, slice, call));
    const std::uint32_t instance = matched_.instance[r][slice.index];
    if (instance != MatchedCalls::kAlone) members_.push_back({instance, slice.begin, track});
  }

  Json arguments(std::size_t r, const TimelineSlice& slice, const trace::Call& call) const {
    const trace::Tables& tables = run_.tables;
    Json out;
    out["group"] = printable(tables.str(call.group));
    out["seq"] = matched_.seq[r][slice.index];
    // The number in the user's own log, where that counts otherwise.
    const std::uint32_t first = run_.ranks[r].first_number;
    if (first != 0 && !tables.is_message(call))
      out["number"] = matched_.seq[r][slice.index] + first;
    out["id"] = call.id;
    if (call.step != trace::kNone) out["step"] = call.step;
    if (call.peer.value != trace::kNone) out["peer"] = call.peer.value;
    if (!tables.name_lists[call.what].empty()) {
      constexpr std::size_t kNames = 8;
      std::vector<std::string> names = tables.names(call.what);
      for (std::string& name : names) name = printable(name);
      out["what"] = join_and(names, kNames);
    }
    if (call.at.value != 0) out["at"] = printable(tables.str(call.at));
    if (call.tag.value != 0) out["tag"] = printable(tables.str(call.tag));
    out["call"] = printable(trace::describe(tables, call.signature));
    if (slice.issued != slice.begin) out["begins_after_issue_ns"] = slice.begin - slice.issued;
    if (!slice.finished) out["state"] = "unfinished when the trace ends";
    return out;
  }

  void instants(std::size_t r, TimelineTrack host) {
    const trace::RankTrace& trace = run_.ranks[r];
    const TimelinePart& part = shown_.parts[r];
    for (std::size_t e = part.first; e < std::min(part.last, trace.events.size()); ++e) {
      const trace::Event& event = trace.events[e];
      const trace::Nanos time = clock_.times[r][e];
      if (event.kind == trace::EventKind::step) {
        const trace::StepMark& step = trace.steps[event.index];
        events_.instant(fmt::format("step {}", step.n), "step", host, time,
                        TimelineEvents::Scope::thread,
                        step.loss ? Json::object({{"loss", *step.loss}}) : Json::object());
      } else if (event.kind == trace::EventKind::exception) {
        events_.instant("exception", "exception", host, time, TimelineEvents::Scope::process,
                        {{"what", printable(one_line(trace.exceptions[event.index].what))}});
      }
    }
  }

  // From the first rank that comes to a collective to the last, so that a late one is seen as the
  // arrow's end.
  void arrows() {
    std::sort(members_.begin(), members_.end(), [](const Member& a, const Member& b) {
      return std::tuple(a.instance, a.time, a.track.process) <
             std::tuple(b.instance, b.time, b.track.process);
    });
    // Sorted by collective: each run of equal numbers is a chain of arrows, from the first to begin
    // to the last. Chains of one call have no arrow.
    for (std::size_t i = 0; i < members_.size(); ++i) {
      const bool first = i == 0 || members_[i - 1].instance != members_[i].instance;
      const bool last =
          i + 1 == members_.size() || members_[i + 1].instance != members_[i].instance;
      if (first && last) continue;
      events_.arrow(members_[i].instance + std::uint64_t{1},
                    first  ? TimelineEvents::Arrow::begins
                    : last ? TimelineEvents::Arrow::ends
                           : TimelineEvents::Arrow::goes_on,
                    members_[i].track, members_[i].time);
    }
  }

  // Points before the first event that is shown are left out.
  void counter(const TimelineCounter& counter) {
    const std::vector<trace::Nanos>& times = clock_.times[counter.rank];
    const std::size_t first = shown_.parts[counter.rank].first;
    const trace::Nanos from = first == 0 || first >= times.size() ? 0 : times[first];
    for (const TimelineCounter::Point& point : counter.points) {
      const trace::Nanos time = point.time - clock_.start[counter.rank];
      if (time < from) continue;
      Json values;
      for (std::size_t s = 0; s < counter.series.size(); ++s)
        values[counter.series[s]] = point.values[s];
      events_.counter(counter.name, hosts_[counter.rank], time, values);
    }
  }

  // When the rank issued the call that the evidence names, if it did; else its last time.
  trace::Nanos time_of(std::size_t r, const verify::Finding& finding) {
    const trace::RankTrace& trace = run_.ranks[r];
    for (const verify::Evidence& evidence : finding.evidence) {
      if (evidence.rank != trace.rank || !evidence.id) continue;
      const auto call =
          std::lower_bound(trace.calls.begin(), trace.calls.end(), *evidence.id,
                           [](const trace::Call& one, std::int64_t id) { return one.id < id; });
      if (call != trace.calls.end() && call->id == *evidence.id)
        return std::min(last_[r], issued(r)[static_cast<std::size_t>(call - trace.calls.begin())]);
    }
    return last_[r];
  }

  // By call of the rank: when it was issued. Found once.
  const std::vector<trace::Nanos>& issued(std::size_t r) {
    std::vector<trace::Nanos>& times = issued_[r];
    if (!times.empty()) return times;
    times.resize(run_.ranks[r].calls.size());
    for (std::size_t e = 0; e < run_.ranks[r].events.size(); ++e)
      if (run_.ranks[r].events[e].kind == trace::EventKind::issue)
        times[run_.ranks[r].events[e].index] = clock_.times[r][e];
    return times;
  }

  void finding(const verify::Finding& finding) {
    constexpr std::size_t kRanks = 64;  // enough to see a finding of thousands of ranks
    const std::string name =
        fmt::format("{} {}", verify::to_string(finding.severity), verify::rule(finding.rule).name);
    const Json args = Json::object({{"message", printable(summary_of(finding))},
                                    {"next", printable(finding.next)},
                                    {"certainty", verify::to_string(finding.certainty)},
                                    {"who", who_in_words(finding)},
                                    {"where", printable(where_in_words(finding))},
                                    {"why", printable(finding.why)},
                                    {"fix", printable(finding.fix)}});
    std::size_t shown = 0;
    for (const trace::Rank rank : finding.culprits.empty() ? finding.ranks : finding.culprits) {
      const trace::RankTrace* trace = run_.find(rank);
      if (trace == nullptr || shown == kRanks) continue;
      ++shown;
      const auto r = static_cast<std::size_t>(trace - run_.ranks.data());
      events_.instant(name, "finding", hosts_[r], time_of(r, finding),
                      TimelineEvents::Scope::process, args);
    }
    // None of its ranks has a trace.
    if (shown == 0) {
      events_.instant(name, "finding", TimelineTrack{}, end_, TimelineEvents::Scope::global, args);
    }
  }

  struct Member {
    std::uint32_t instance;
    trace::Nanos time;
    TimelineTrack track;
  };

  const FilteredReport& filtered_;
  const trace::Run& run_;
  TimelineClock clock_;
  MatchedCalls matched_;
  Shown shown_;
  const TimelineOptions& options_;
  trace::Nanos shortest_;           // the length of slices that took no time
  std::vector<trace::Nanos> last_;  // by rank index: of what is shown
  trace::Nanos end_ = 0;
  std::uint64_t next_thread_ = 1;
  std::vector<TimelineTrack> hosts_;                         // by rank index: its track "host"
  std::map<std::size_t, std::vector<trace::Nanos>> issued_;  // by rank index
  std::vector<Member> members_;
  TimelineEvents events_;
};

}  // namespace

std::string timeline_report(const FilteredReport& filtered, const trace::Run& run,
                            const TimelineOptions& options) {
  return TimelineWriter(filtered, run, options).str();
}

namespace {

using Json = nlohmann::ordered_json;

// The format's unit is a microsecond; nanoseconds are decimals. Exact up to 2^53 ns, 104 days.
double microseconds(trace::Nanos time) { return static_cast<double>(time) / 1000; }

Json event(char phase, std::string_view name, std::string_view category, TimelineTrack track) {
  Json out = {{"ph", std::string(1, phase)}, {"name", name}};
  if (!category.empty()) out["cat"] = category;
  out["pid"] = track.process;
  out["tid"] = track.thread;
  return out;
}

}  // namespace

void TimelineEvents::add(const Json& event) {
  if (!out_.empty()) out_ += ",\n";
  out_ += json_text(event);
}

void TimelineEvents::metadata(std::string_view kind, TimelineTrack track, const Json& args) {
  Json out = event('M', kind, {}, track);
  out["args"] = args;
  add(out);
}

void TimelineEvents::slice(std::string_view name, std::string_view category, TimelineTrack track,
                           trace::Nanos from, trace::Nanos to, const Json& args) {
  Json out = event('X', name, category, track);
  out["ts"] = microseconds(from);
  out["dur"] = microseconds(to - from);
  out["args"] = args;
  add(out);
}

void TimelineEvents::counter(std::string_view name, TimelineTrack track, trace::Nanos time,
                             const Json& args) {
  Json out = event('C', name, {}, track);
  out["ts"] = microseconds(time);
  out["args"] = args;
  add(out);
}

void TimelineEvents::instant(std::string_view name, std::string_view category, TimelineTrack track,
                             trace::Nanos time, Scope scope, const Json& args) {
  Json out = event('i', name, category, track);
  out["ts"] = microseconds(time);
  out["s"] = std::string(1, static_cast<char>(scope));
  out["args"] = args;
  add(out);
}

void TimelineEvents::arrow(std::uint64_t id, Arrow part, TimelineTrack track, trace::Nanos time) {
  Json out = event(static_cast<char>(part), "meets", "meets", track);
  out["id"] = id;
  out["ts"] = microseconds(time);
  if (part == Arrow::ends) out["bp"] = "e";  // ends in the slice around it, not the next
  add(out);
}

}  // namespace lockstep::reports
