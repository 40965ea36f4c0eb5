#include "trace/evidence/launched_calls.h"

#include <algorithm>
#include <optional>
#include <set>

namespace lockstep::trace {

namespace {

// The call of the default group in which all traces wait first, and how many calls of it each had
// queued; nothing where they differ.
struct Waiting {
  std::int64_t number = 0, queued = 0;
  bool operator==(const Waiting&) const = default;
};

std::optional<Waiting> waiting_in(const RankTrace& trace, GroupId world, const Tables& tables) {
  std::optional<Waiting> out;
  for (const Call& call : trace.calls) {
    if (call.group != world || tables.is_message(call)) continue;
    const std::int64_t number = std::int64_t{call.seq} + 1;
    if (!out || number < out->number) out = Waiting{number, 0};
  }
  if (!out) return std::nullopt;
  for (const RankTrace::Progress& progress : trace.progress) {
    if (progress.group != world || !progress.enqueued) continue;
    out->queued = static_cast<std::int64_t>(std::min<std::uint64_t>(*progress.enqueued, INT32_MAX));
    return out;
  }
  return std::nullopt;
}

}  // namespace

void add_ranks_behind(std::vector<RankTrace>& traces, const std::vector<LaunchedCalls>& launched,
                      Tables& tables) {
  if (launched.empty() || traces.empty()) return;
  const GroupId world = tables.groups.intern("world");
  const std::optional<Waiting> all = waiting_in(traces[0], world, tables);
  std::set<Rank> known;
  for (const RankTrace& trace : traces) {
    known.insert(trace.rank);
    if (!all || waiting_in(trace, world, tables) != all) return;
  }
  for (const LaunchedCalls& one : launched) {
    const bool asked_then = one.most == all->queued && one.own < all->number && one.own >= 0;
    if (!asked_then || !known.insert(one.rank).second) continue;
    RankTrace trace;
    trace.rank = one.rank;
    trace.source = one.source;
    trace.backend = "nccl";
    trace.first_number = 1;
    trace.end = End::hung;
    const auto count = static_cast<std::uint64_t>(one.own);
    trace.progress.push_back(
        {.group = world, .enqueued = count, .started = {}, .completed = count});
    traces.push_back(std::move(trace));
  }
}

}  // namespace lockstep::trace
