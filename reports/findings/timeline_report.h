// A run and its report as a timeline for trace viewers: the Trace Event Format (JSON), which
// Perfetto (https://ui.perfetto.dev) and chrome://tracing open.
// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
//
// - A process per rank, a track per stream or group (timeline_tracks.h).
// - A slice per call; an unfinished one lasts until the end of the run, and of a recorded one a
//   twentieth longer, and says so.
// - Arrows connect the calls of a collective or message, in the order of their begins.
// - A finding is an instant at the culprits' calls, or where they were last seen.
// - Steps and exceptions are instants.
// - For a program that never ran (verify/replay/replay.h, was_recorded), what no schedule
//   reaches is left out, and a rank that is stuck stays in its call until the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "reports/filter/filter.h"
#include "trace/ids.h"
#include "trace/run.h"
#include "verify/replay/semantics.h"

namespace lockstep::reports {

// Amounts that a rank holds over time, one series per part; viewers show a stack or a track per
// series.
struct TimelineCounter {
  struct Point {
    trace::Nanos time = 0;  // on the clock of the run's events
    std::vector<std::int64_t> values;
  };

  std::size_t rank = 0;             // into Run::ranks: the process that shows it
  std::string name;                 // with its unit
  std::vector<std::string> series;  // with different names
  std::vector<Point> points;        // in order of time; each value holds until the next point
};

struct TimelineOptions {
  // The most calls, spans and steps that viewers can open. From a larger run, the last ones of
  // every rank are shown, since a hang is at the end; the file says so.
  std::uint64_t most_entries = 400'000;
  bool simulated = false;  // the times are those of one simulated clock
  // By which verify() judged; empty: the traces'.
  std::optional<verify::CallSemantics> semantics = std::nullopt;
  std::vector<TimelineCounter> counters = {};  // of runs that have times
};

// One object and a line break. `otherData` says how to read the times (timeline_tracks.h) and what
// was left out. O(events log events + points). Never fails: bytes that are not UTF-8 become U+FFFD.
std::string timeline_report(const FilteredReport& filtered, const trace::Run& run,
                            const TimelineOptions& options = {});

// Writes events of the Trace Event Format, one per line.

// Where an event is shown. Perfetto takes process 0 and thread 0 for the idle task, so both count
// from 1; threads count across all processes.
struct TimelineTrack {
  std::uint64_t process = 1;
  std::uint64_t thread = 1;
};

class TimelineEvents {
 public:
  // `kind`: process_name, thread_name, … with its one argument.
  void metadata(std::string_view kind, TimelineTrack track, const nlohmann::ordered_json& args);
  void slice(std::string_view name, std::string_view category, TimelineTrack track,
             trace::Nanos begin, trace::Nanos end, const nlohmann::ordered_json& args);
  enum class Scope : char { thread = 't', process = 'p', global = 'g' };
  // Values from `time` on, stacked; `args`: numbers by series.
  void counter(std::string_view name, TimelineTrack track, trace::Nanos time,
               const nlohmann::ordered_json& args);
  void instant(std::string_view name, std::string_view category, TimelineTrack track,
               trace::Nanos time, Scope scope, const nlohmann::ordered_json& args);
  enum class Arrow : char { begins = 's', goes_on = 't', ends = 'f' };
  void arrow(std::uint64_t id, Arrow part, TimelineTrack track, trace::Nanos time);

  // The elements of the array, separated by commas and line breaks.
  std::string take() { return std::move(out_); }

 private:
  void add(const nlohmann::ordered_json& event);
  std::string out_;
};

}  // namespace lockstep::reports
