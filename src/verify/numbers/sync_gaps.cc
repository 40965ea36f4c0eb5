#include "verify/numbers/sync_gaps.h"

#include <algorithm>
#include <set>

#include "verify/numbers/sync_calls.h"

namespace lockstep {

namespace {

bool names(const Tables& tables, const Call& call, StringId name) {
  const std::vector<StringId>& what = tables.name_lists[call.what];
  return std::find(what.begin(), what.end(), name) != what.end();
}

// Whether one rank lacks a synchronisation between two of its marks; `from` may be nullptr.
bool lacks_sync(const Tables& tables, const RankTrace& trace, StringId name, const StateMark* from,
                const StateMark* to) {
  bool any_call = false;
  bool any_named = false;
  bool inside = from == nullptr;
  std::size_t between = 0;
  std::size_t between_named = 0;
  for (const Event& event : trace.events) {
    if (event.kind == EventKind::state) {
      const StateMark* mark = &trace.states[event.index];
      inside = (inside || mark == from) && mark != to;
    } else if (event.kind == EventKind::issue) {
      const Call& call = trace.calls[event.index];
      any_call = true;
      if (!is_reduction(tables.signatures[call.signature].op)) continue;
      any_named |= call.what.value != 0;
      if (!inside) continue;
      ++between;
      between_named += call.what.value != 0 && names(tables, call, name) ? 1U : 0U;
    }
  }
  return any_call && (any_named ? between_named : between) == 0;
}

}  // namespace

std::vector<std::uint32_t> ranks_without_sync(const Run& run, const Series& series,
                                              const ValueRow& row) {
  const ValueRow* before = row_before(series, row.n - 1);
  std::vector<std::uint32_t> out;
  for (const Reading& reading : row.readings) {
    const StateMark* from = before == nullptr ? nullptr : before->of(reading.rank);
    if (lacks_sync(run.tables, run.ranks[reading.rank], series.name, from, reading.mark)) {
      out.push_back(reading.rank);
    }
  }
  return out;
}

}  // namespace lockstep
