#include "trace/formats/watchdog_log/planned_calls.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <utility>

#include "trace/trace_builder.h"

namespace lockstep::trace {

void rebuild(RankTrace& trace, std::vector<PlannedCall> planned) {
  std::map<GroupId, std::size_t> order;
  for (const PlannedCall& p : planned) order.emplace(p.group, order.size());
  std::stable_sort(planned.begin(), planned.end(), [&](const auto& a, const auto& b) {
    return std::pair(order[a.group], a.seq) < std::pair(order[b.group], b.seq);
  });
  trace.calls.clear();
  trace.first_seq.clear();
  std::vector<Event> others;  // exceptions
  for (const Event& event : trace.events) {
    if (event.kind == EventKind::exception) others.push_back(event);
  }
  trace.events.clear();
  // The calls before each group's first one are missing, as if a ring had dropped them.
  trace.dropped = 0;
  std::set<GroupId> seen;
  for (const PlannedCall& p : planned) {
    if (!p.message && seen.insert(p.group).second) {
      trace.dropped += static_cast<std::uint64_t>(p.seq);
    }
  }
  TraceBuilder builder(trace);
  std::vector<std::int64_t> waited;
  for (const PlannedCall& p : planned) {
    const auto id = static_cast<std::int64_t>(trace.calls.size());
    Call call;
    call.id = id;
    call.group = p.group;
    call.signature = p.signature;
    call.seq = static_cast<std::uint32_t>(p.seq);
    call.flags = kAsync;
    const auto numbering =
        p.message ? TraceBuilder::Numbering::count : TraceBuilder::Numbering::recorded;
    if (!builder.add_issue(call, p.message, kNoTime, numbering).empty()) continue;
    if (p.completed) builder.add_call_event(EventKind::complete, id, kNoTime);
    if (p.waits) waited.push_back(id);
  }
  // The job hangs: the rank waits for what timed out.
  for (const std::int64_t id : waited) builder.add_call_event(EventKind::wait, id, kNoTime);
  for (const Event& event : others) trace.events.push_back(event);
  builder.finish();
}

}  // namespace lockstep::trace
