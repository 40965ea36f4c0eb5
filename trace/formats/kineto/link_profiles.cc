// A profile is a window of the run. The windows of all ranks are cut to their common training
// steps. Where sequence numbers are recorded, these align the windows, too.
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <unordered_set>
#include <utility>
#include <vector>

#include "trace/formats/kineto/events.h"
#include "trace/formats/kineto/work.h"
#include "trace/run.h"

namespace lockstep::trace {

namespace {

// The training steps that a profile covers, both inclusive.
struct Window {
  std::int64_t first = 0, last = INT64_MAX;
};

std::optional<Window> window_of(const RankTrace& trace) {
  if (trace.steps.empty()) return std::nullopt;
  Window window{INT64_MAX, 0};
  for (const StepMark& step : trace.steps) {
    window.first = std::min(window.first, step.n);
    window.last = std::max(window.last, step.n);
  }
  return window;
}

// Drops the calls outside the window's steps. Calls without recorded numbers are renumbered from 0.
void cut_to(RankTrace& trace, const Window& window, const Tables& tables) {
  constexpr std::uint32_t kGone = UINT32_MAX;
  std::vector<std::uint32_t> position(trace.calls.size(), kGone);  // new index, by old index
  std::map<std::pair<GroupId, bool>, std::uint32_t> count;
  std::map<GroupId, std::uint64_t> first_seq;
  std::vector<Call> kept;
  for (std::size_t c = 0; c < trace.calls.size(); ++c) {
    Call call = trace.calls[c];
    if (call.step < window.first || call.step > window.last) continue;
    const bool message = tables.is_message(call);
    if (!message && trace.first_seq.contains(call.group)) {
      first_seq.emplace(call.group, call.seq);
    } else {
      call.seq = count[{call.group, message}]++;
    }
    position[c] = static_cast<std::uint32_t>(kept.size());
    kept.push_back(call);
  }
  std::vector<Event> events;
  // A span belongs to the step whose end comes next. What waits for something that is cut off, does
  // not wait any more.
  std::int64_t done = window_of(trace)->first - 1;  // the last step that has ended
  std::unordered_set<std::int64_t> waited_for;
  for (const Call& call : kept) waited_for.insert(call.id);
  for (Event event : trace.events) {
    if (event.kind == EventKind::step) {
      done = trace.steps[event.index].n;
    } else if (event.kind == EventKind::span) {
      const SpanMark& span = trace.spans[event.index];
      if (done < window.first - 1 || done >= window.last) continue;
      if (span.after != kNone && !waited_for.contains(span.after)) continue;
      waited_for.insert(span.id);
    } else {
      event.index = position[event.index];
      if (event.index == kGone) continue;
    }
    events.push_back(event);
  }
  trace.calls = std::move(kept);
  trace.events = std::move(events);
  trace.first_seq = std::move(first_seq);
}

// Whether recorded numbers align every group of the trace.
bool fully_numbered(const RankTrace& trace, const Tables& tables) {
  return std::all_of(trace.calls.begin(), trace.calls.end(), [&](const Call& call) {
    return tables.is_message(call) || trace.dropped == 0 || trace.first_seq.contains(call.group);
  });
}

void cut_to_common_steps(std::span<RankTrace> traces, const Tables& tables) {
  Window common;
  for (const RankTrace& trace : traces) {
    const std::optional<Window> window = window_of(trace);
    if (!window) return;  // windows of time: nothing to cut by
    common.first = std::max(common.first, window->first);
    common.last = std::min(common.last, window->last);
  }
  const bool numbered = std::all_of(traces.begin(), traces.end(), [&](const RankTrace& trace) {
    return fully_numbered(trace, tables);
  });
  for (RankTrace& trace : traces) {
    const std::optional<Window> window = window_of(trace);
    const bool exact = window->first == common.first && window->last == common.last;
    if (!exact) cut_to(trace, common, tables);
    // All windows now begin with the same step, which aligns them where numbers do not.
    if (!numbered) trace.dropped = 0;
    if (common.first > common.last) {
      trace.add_damage("the profiles of all ranks have no training step in common");
    }
  }
}

}  // namespace

void link_kineto(std::span<RankTrace> traces, Tables& tables) {
  std::int32_t world = 0;
  for (const RankTrace& trace : traces) world = std::max(world, trace.world_size);
  for (RankTrace& trace : traces) trace.world_size = world;
  cut_to_common_steps(traces, tables);
  add_late_starts(traces, tables);
}

}  // namespace lockstep::trace
