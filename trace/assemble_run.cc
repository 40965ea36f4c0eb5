// Makes one run of the traces of all ranks: one trace each, and headers that agree.

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"
#include "trace/groups.h"
#include "trace/load.h"
#include "trace/pieces.h"
#include "trace/run.h"

namespace lockstep::trace {

namespace {

// The values that the headers give, with their ranks: "4 (ranks 0-2), 5 (rank 3)".
std::string disagreement(const std::map<std::string, std::vector<std::int32_t>>& holders) {
  std::vector<std::string> parts;
  for (const auto& [value, ranks] : holders) {
    parts.push_back(
        fmt::format("{}{}{})", value, (ranks.size() == 1 ? " (rank " : " (ranks "), ranges(ranks)));
  }
  return join_and(parts, 8);
}

// Whether the trace is a recording by another tool without times. Two such recordings of a rank
// differ in nothing but their names and calls.
bool is_untimed_recording(const RankTrace& trace) {
  return !trace.calls.empty() && !trace.ends_of_waits &&
         trace.source.find(".trace.jsonl") == std::string::npos &&
         std::all_of(trace.events.begin(), trace.events.end(),
                     [](const Event& event) { return event.time == kNoTime; });
}

// Whether two recordings without times have the same calls: a log that was copied or repeated.
bool say_the_same(const RankTrace& a, const RankTrace& b) {
  return is_untimed_recording(a) && is_untimed_recording(b) &&
         std::equal(a.calls.begin(), a.calls.end(), b.calls.begin(), b.calls.end(),
                    [](const Call& x, const Call& y) {
                      return x.group == y.group && x.seq == y.seq && x.signature == y.signature;
                    });
}

// Whether two recordings without times have names that differ in more than their numbers:
// "chakra.0.json" and "small_chakra.0.json". These are samples of two programs in one folder and do
// not contradict each other.
bool of_two_programs(const RankTrace& a, const RankTrace& b) {
  return is_untimed_recording(a) && is_untimed_recording(b) &&
         shape_of(a.source) != shape_of(b.source);
}

// Keeps one trace of each rank: the one with most events, then the first by name, so that the order
// of files does not matter.
void keep_one_each(Run& run) {
  std::sort(run.ranks.begin(), run.ranks.end(), [](const RankTrace& a, const RankTrace& b) {
    if (a.rank != b.rank) return a.rank < b.rank;
    if (a.events.size() != b.events.size()) return a.events.size() > b.events.size();
    return a.source < b.source;
  });
  std::vector<RankTrace> kept;
  for (RankTrace& trace : run.ranks) {
    if (kept.empty() || kept.back().rank != trace.rank) {
      kept.push_back(std::move(trace));
      continue;
    }
    if (say_the_same(kept.back(), trace)) continue;
    if (of_two_programs(kept.back(), trace)) {
      kept.back().inconclusive = fmt::format(
          "rank {} is, by their names, in {} and in {}, which look like two jobs; the first, which "
          "holds more, was read",
          trace.rank.value, printable(kept.back().source), printable(trace.source));
      continue;
    }
    run.header_conflicts.push_back(
        fmt::format("rank {} is in {} and in {}; the first, which holds more, was read",
                    trace.rank.value, printable(kept.back().source), printable(trace.source)));
  }
  run.ranks = std::move(kept);
}

// Takes the largest world size, and notes where the headers disagree.
void compare_headers(Run& run) {
  std::map<std::int32_t, std::vector<std::int32_t>> sizes;
  std::map<std::string, std::vector<std::int32_t>> semantics;
  for (const RankTrace& trace : run.ranks) {
    run.header_conflicts.insert(run.header_conflicts.end(), trace.conflicts.begin(),
                                trace.conflicts.end());
    run.world_size = std::max({run.world_size, trace.world_size, trace.rank.value + 1});
    for (const RankTrace::Membership& group : trace.groups) {
      if (trace.world_size == kNone && group.ranks.size() > 0)
        run.world_size = std::max(run.world_size, group.ranks.highest().value + 1);
    }
    if (trace.world_size != kNone) sizes[trace.world_size].push_back(trace.rank.value);
    semantics[trace.semantics == Semantics::mpi ? "mpi" : "c10d"].push_back(trace.rank.value);
  }
  if (sizes.size() > 1) {
    std::map<std::string, std::vector<std::int32_t>> named;
    for (auto& [size, ranks] : sizes) named[std::to_string(size)] = std::move(ranks);
    run.header_conflicts.push_back(
        fmt::format("the headers disagree about world_size: {}", disagreement(named)));
  }
  if (semantics.size() > 1) {
    run.header_conflicts.push_back(
        fmt::format("the headers disagree about semantics: {}", disagreement(semantics)));
  }
}

}  // namespace

Run assemble_run(Tables tables, std::vector<RankTrace> traces) {
  Run run;
  run.tables = std::move(tables);
  run.ranks = std::move(traces);
  keep_one_each(run);
  compare_headers(run);
  separate_namesakes(run);
  return run;
}

}  // namespace lockstep::trace
