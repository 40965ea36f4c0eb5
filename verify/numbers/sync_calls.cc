#include "verify/numbers/sync_calls.h"

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <tuple>

#include "verify/numbers/rounding.h"

namespace lockstep::verify {

namespace {

Average average_of(std::string_view tag) {
  constexpr std::string_view kWord = "average=";
  const std::size_t at = tag.find(kWord);
  if (at == std::string_view::npos) return Average::undeclared;
  const std::string_view value = tag.substr(at + kWord.size());
  const std::string_view word = value.substr(0, value.find(' '));
  if (word == "world") return Average::world;
  if (word == "contributors") return Average::contributors;
  if (word == "sum") return Average::sum;
  return Average::undeclared;
}

SyncCall describe_call(const Context& context, const GroupStreams& group, const trace::Call& call) {
  SyncCall out;
  for (const Stream& stream : group.streams) out.ranks.push_back(stream.rank_index);
  std::sort(out.ranks.begin(), out.ranks.end());
  out.whole = group.absent.empty();
  const trace::Tables& tables = context.run.tables;
  out.average = average_of(tables.str(call.tag));
  const std::vector<std::string> dtypes = tables.names(tables.signatures[call.signature].dtypes);
  if (!dtypes.empty()) out.roundoff = unit_roundoff(dtypes.front());
  return out;
}

}  // namespace

SyncCalls::SyncCalls(const Context& context) {
  const trace::Tables& tables = context.run.tables;
  std::unordered_map<std::uint32_t, const GroupStreams*> groups;
  for (const GroupStreams& group : context.groups) groups[group.group.value] = &group;
  using CallKey = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>;
  std::set<CallKey> seen;
  CallKey last{};
  bool unanimous = true;
  for (const trace::RankTrace& trace : context.run.ranks) {
    for (const trace::Call& call : trace.calls) {
      if (call.what.value == 0 || !trace::is_reduction(tables.op(call))) continue;
      const CallKey key(call.what.value, call.group.value, call.tag.value, call.signature.value);
      if (key == last || !seen.insert(key).second) continue;
      last = key;
      const auto group = groups.find(call.group.value);
      if (group == groups.end()) continue;
      const SyncCall described = describe_call(context, *group->second, call);
      if (described.average != Average::undeclared) {
        unanimous =
            unanimous && (declared_ == Average::undeclared || declared_ == described.average);
        declared_ = described.average;
      }
      for (const trace::StringId name : tables.name_lists[call.what]) {
        SyncCall& known = by_name_[name.value];
        if (known.ranks.size() < described.ranks.size()) known = described;
      }
    }
  }
  if (!unanimous) declared_ = Average::undeclared;
}

const SyncCall* SyncCalls::of(trace::StringId name) const {
  const auto found = by_name_.find(name.value);
  return found == by_name_.end() ? nullptr : &found->second;
}

namespace {

bool carries(const trace::Tables& tables, const trace::Call& call, trace::StringId name) {
  const std::vector<trace::StringId>& what = tables.name_lists[call.what];
  return std::find(what.begin(), what.end(), name) != what.end();
}

// Whether one rank lacks a synchronisation between two of its marks; `from` may be nullptr.
bool lacks_sync(const trace::Tables& tables, const trace::RankTrace& trace,
                std::optional<trace::StringId> name, const trace::StateMark* from,
                const trace::StateMark* to) {
  bool any_call = false;
  bool inside = from == nullptr;
  std::size_t between = 0;
  for (const trace::Event& event : trace.events) {
    if (event.kind == trace::EventKind::state) {
      const trace::StateMark* mark = &trace.states[event.index];
      inside = (inside || mark == from) && mark != to;
    } else if (event.kind == trace::EventKind::issue) {
      const trace::Call& call = trace.calls[event.index];
      any_call = true;
      const bool counts =
          trace::is_reduction(tables.op(call)) && (!name || carries(tables, call, *name));
      between += inside && counts ? 1U : 0U;
    }
  }
  return any_call && between == 0;
}

}  // namespace

std::vector<std::uint32_t> ranks_without_sync(const trace::Run& run, const ValueTable& table,
                                              const SyncCalls& calls, const ValueRow& row) {
  const std::span<const Series> all = table.series();
  const bool named = std::any_of(all.begin(), all.end(), [&](const Series& s) {
    return s.phase == row.phase && calls.of(s.name) != nullptr;
  });
  const std::optional<trace::StringId> name = named ? std::optional(row.name) : std::nullopt;
  const ValueRow* before = row_before(*table.series(row.phase, row.name), row.n - 1);
  std::vector<std::uint32_t> out;
  for (const Reading& reading : row.readings) {
    const trace::StateMark* from = before == nullptr ? nullptr : before->of(reading.rank);
    if (lacks_sync(run.tables, run.ranks[reading.rank], name, from, reading.mark)) {
      out.push_back(reading.rank);
    }
  }
  return out;
}

std::optional<CallRef> unwaited_reduction(const trace::Run& run, const ValueTable& table,
                                          const ValueRow& row) {
  const std::int64_t elements = elements_of(run, *row.readings.front().mark);
  const ValueRow* before = row_before(*table.series(row.phase, row.name), row.n - 1);
  for (const Reading& reading : row.readings) {
    const trace::RankTrace& trace = run.ranks[reading.rank];
    if (!trace.occurs.waits || elements <= 0) continue;
    const trace::StateMark* const from = before == nullptr ? nullptr : before->of(reading.rank);
    bool inside = from == nullptr;
    std::set<std::uint32_t> open;  // in the order in which they were issued
    bool any_waited = false;
    for (const trace::Event& event : trace.events) {
      if (event.kind == trace::EventKind::state) {
        const trace::StateMark* const mark = &trace.states[event.index];
        if (mark == reading.mark) break;
        inside = inside || mark == from;
      } else if (event.kind == trace::EventKind::issue && inside) {
        const trace::Call& call = trace.calls[event.index];
        const trace::Signature& signature = run.tables.signatures[call.signature];
        if (call.has(trace::kAsync) && trace::is_reduction(signature.op) &&
            signature.in_elements == elements)
          open.insert(event.index);
      } else if (event.kind == trace::EventKind::wait) {
        any_waited = true;
        open.erase(event.index);
      }
    }
    if (any_waited && !open.empty()) return CallRef{reading.rank, *open.begin()};
  }
  return std::nullopt;
}

bool reduced_by_optimizer(const trace::Run& run, const std::vector<std::uint32_t>& ranks,
                          std::int64_t n, std::int64_t elements) {
  return std::all_of(ranks.begin(), ranks.end(), [&](std::uint32_t r) {
    const trace::RankTrace& trace = run.ranks[r];
    bool inside = false;
    std::int64_t reduced = 0;
    for (const trace::Event& event : trace.events) {
      if (event.kind == trace::EventKind::state) {
        const trace::StateMark& mark = trace.states[event.index];
        inside = inside || (mark.n == n && mark.kind == trace::StateMark::Kind::optim &&
                            number_name(run.tables.str(mark.name)) == "lr");
      } else if (event.kind == trace::EventKind::step) {
        if (inside) break;
      } else if (event.kind == trace::EventKind::issue && inside) {
        const trace::Signature& s = run.tables.signatures[trace.calls[event.index].signature];
        if (trace::is_reduction(s.op)) reduced += std::max<std::int64_t>(s.in_elements, 0);
      }
    }
    return reduced >= elements;
  });
}

}  // namespace lockstep::verify
