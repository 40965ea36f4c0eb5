#include "verify/numbers/sync_gaps.h"

#include <algorithm>
#include <optional>
#include <span>

namespace lockstep {

namespace {

bool names(const Tables& tables, const Call& call, StringId name) {
  const std::vector<StringId>& what = tables.name_lists[call.what];
  return std::find(what.begin(), what.end(), name) != what.end();
}

// Whether one rank lacks a synchronisation between two of its marks; `from` may be nullptr.
bool lacks_sync(const Tables& tables, const RankTrace& trace, std::optional<StringId> name,
                const StateMark* from, const StateMark* to) {
  bool any_call = false;
  bool inside = from == nullptr;
  std::size_t between = 0;
  for (const Event& event : trace.events) {
    if (event.kind == EventKind::state) {
      const StateMark* mark = &trace.states[event.index];
      inside = (inside || mark == from) && mark != to;
    } else if (event.kind == EventKind::issue) {
      const Call& call = trace.calls[event.index];
      any_call = true;
      const bool counts = is_reduction(tables.signatures[call.signature].op) &&
                          (!name || names(tables, call, *name));
      between += inside && counts ? 1U : 0U;
    }
  }
  return any_call && between == 0;
}

}  // namespace

std::vector<std::uint32_t> ranks_without_sync(const Run& run, const ValueTable& table,
                                              const SyncCalls& calls, const ValueRow& row) {
  const std::span<const Series> all = table.series();
  const bool named = std::any_of(all.begin(), all.end(), [&](const Series& s) {
    return s.phase == row.phase && calls.of(s.name) != nullptr;
  });
  const std::optional<StringId> name = named ? std::optional(row.name) : std::nullopt;
  const ValueRow* before = row_before(*table.series(row.phase, row.name), row.n - 1);
  std::vector<std::uint32_t> out;
  for (const Reading& reading : row.readings) {
    const StateMark* from = before == nullptr ? nullptr : before->of(reading.rank);
    if (lacks_sync(run.tables, run.ranks[reading.rank], name, from, reading.mark)) {
      out.push_back(reading.rank);
    }
  }
  return out;
}

}  // namespace lockstep
