// A run and its report as a timeline for trace viewers: the Trace Event Format (JSON), which
// Perfetto (https://ui.perfetto.dev) and chrome://tracing open.
// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
//
// - A process per rank, a track per stream or group (timeline_tracks.h).
// - A slice per call; one that never finished lasts until the last time of the run and says so.
// - Arrows join the calls that meet, from the first to come to the last.
// - A finding is an instant at the culprits' calls, or where they were last seen.
// - Steps and exceptions are instants.
// - Of a program that never ran (verify/replay/replay.h, was_recorded), what no schedule reaches
//   is left out, and a rank that never gets on stays in its call until the end.
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

// What a rank holds over time, a series for each part: viewers show a stack, or a track a series.
struct TimelineCounter {
  struct Point {
    trace::Nanos time = 0;  // on the clock of the run's events
    std::vector<std::int64_t> values;
  };

  std::size_t rank = 0;             // into Run::ranks: in whose process it is shown
  std::string name;                 // with its unit
  std::vector<std::string> series;  // of different names
  std::vector<Point> points;        // in order of time; each value holds until the next point
};

struct TimelineOptions {
  // Calls, spans and steps: what viewers still open. Of a larger run the last ones of every rank
  // are shown, and the file says so: what hangs is at the end.
  std::uint64_t most_entries = 400'000;
  bool simulated = false;  // the times are those of one simulated clock
  // Those by which verify() judged; nothing: the traces'.
  std::optional<verify::CallSemantics> semantics = std::nullopt;
  std::vector<TimelineCounter> counters = {};  // of runs that have times
};

// One object and a newline. `otherData` says how the times are to be read (timeline_tracks.h) and
// what was left out. O(events log events + points). Never fails: bytes that are no UTF-8 become
// U+FFFD.
std::string timeline_report(const FilteredReport& filtered, const trace::Run& run,
                            const TimelineOptions& options = {});

// Writes events of the Trace Event Format, one a line.

// Where an event is shown. Process 0 and its thread 0 mean the idle task to Perfetto, so that both
// are counted from 1, threads over all processes.
struct TimelinePlace {
  std::uint64_t process = 1;
  std::uint64_t thread = 1;
};

class TimelineEvents {
 public:
  // `kind`: process_name, thread_name, … with its one argument.
  void metadata(std::string_view kind, TimelinePlace place, const nlohmann::ordered_json& args);
  void slice(std::string_view name, std::string_view category, TimelinePlace place,
             trace::Nanos begin, trace::Nanos end, const nlohmann::ordered_json& args);
  enum class Scope : char { thread = 't', process = 'p', global = 'g' };
  // Values that hold from `time` on, a part each of a stack; `args`: numbers.
  void counter(std::string_view name, TimelinePlace place, trace::Nanos time,
               const nlohmann::ordered_json& args);
  void instant(std::string_view name, std::string_view category, TimelinePlace place,
               trace::Nanos time, Scope scope, const nlohmann::ordered_json& args);
  enum class Arrow : char { begins = 's', goes_on = 't', ends = 'f' };
  void arrow(std::uint64_t id, Arrow part, TimelinePlace place, trace::Nanos time);

  // The array's elements, separated by commas and line feeds.
  std::string take() { return std::move(out_); }

 private:
  void begin(char phase, std::string_view name, std::string_view category, TimelinePlace place);
  std::string out_;
};

// Any bytes as a JSON string with its quotes.
std::string json_string(std::string_view bytes);

}  // namespace lockstep::reports
