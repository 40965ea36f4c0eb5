#include "trace/other_attempts.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/folded_ranges.h"
#include "base/quantities.h"
#include "base/text.h"
#include "trace/groups.h"
#include "trace/rank_list.h"
#include "trace/signature.h"

namespace lockstep::trace {

namespace {

// By how much clocks of one job may differ. The watchdog waits ten minutes before a job ends, so
// that calls of two attempts are further apart.
constexpr Nanos kClocksDiffer = std::int64_t{300} * 1'000'000'000;

// When a rank issued and completed a collective; kNoTime: not known, or the rank may complete it
// before others issue it (the root of a broadcast).
struct Times {
  std::uint32_t seq = 0;
  Nanos issued = kNoTime;
  Nanos completed = kNoTime;
};

// The times of a rank's collectives in one group, ascending by number.
std::vector<Times> times_in(const RankTrace& trace, GroupId group, const Tables& tables) {
  std::vector<Times> out;
  for (const Event& event : trace.events) {
    const bool issue = event.kind == EventKind::issue;
    if (!issue && event.kind != EventKind::complete) continue;
    const Call& call = trace.calls[event.index];
    if (call.group != group || tables.is_message(call)) continue;
    if (issue) {
      out.push_back({call.seq, event.time, kNoTime});
      continue;
    }
    const auto known =
        std::lower_bound(out.begin(), out.end(), call.seq,
                         [](const Times& t, std::uint32_t seq) { return t.seq < seq; });
    const bool found = known != out.end() && known->seq == call.seq;
    if (!found || !completes_together(tables.op(call))) continue;
    // Over Gloo a dump tells that a call completed, and not when: before it was written.
    known->completed = event.time != kNoTime ? event.time : trace.written;
  }
  return out;
}

// When the trace begins and ends, nearly: events are nearly in the order of their times. kNoTime
// where it has no times.
std::pair<Nanos, Nanos> span_of(const RankTrace& trace) {
  const std::vector<Event>& events = trace.events;
  const auto timed = [](const Event& event) { return event.time != kNoTime; };
  const auto first = std::find_if(events.begin(), events.end(), timed);
  if (first == events.end()) return {kNoTime, kNoTime};
  return {first->time, std::find_if(events.rbegin(), events.rend(), timed)->time};
}

// How much earlier one rank completed a call than the other one issued that call or one before it,
// at most over all calls; 0: that is no contradiction.
struct Gap {
  Nanos length = 0;
  std::uint32_t completed = 0, issued = 0;  // the two calls, by number
};
Gap gap_between(const std::vector<Times>& completing, const std::vector<Times>& issuing) {
  Gap out;
  auto next = issuing.begin();
  Times latest;  // the one that was issued last, of those with no higher number
  for (const Times& call : completing) {
    for (; next != issuing.end() && next->seq <= call.seq; ++next)
      if (next->issued >= latest.issued) latest = *next;
    if (latest.issued == kNoTime || call.completed == kNoTime) continue;
    const Nanos length = latest.issued - call.completed;
    if (length > out.length) out = {length, call.seq, latest.seq};
  }
  return out;
}

// The members of a group, by whether their times contradict those of the first one.
struct Sides {
  std::vector<Rank> with_first, apart;
  bool apart_is_older = false;
  Gap gap;
};

class AttemptFinder {
 public:
  explicit AttemptFinder(const Run& run) : run_(run) {
    for (const RankTrace& trace : run.ranks) spans_[trace.rank] = span_of(trace);
  }

  std::optional<OtherAttempt> find() {
    if (!any_apart()) return std::nullopt;
    // By descending size: a large group tells which side is that of most ranks.
    std::map<GroupId, RankList> groups;
    for (const RankTrace& trace : run_.ranks)
      for (const auto& membership : trace.groups)
        groups.try_emplace(membership.group, membership.ranks);
    std::vector<std::pair<std::size_t, GroupId>> order;
    for (const auto& [group, ranks] : groups) order.emplace_back(ranks.size(), group);
    std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first > b.first : a.second < b.second;
    });
    for (const auto& [size, group] : order) {
      if (const Sides sides = compare(group, groups[group]); !sides.apart.empty())
        return describe(group, sides);
    }
    return std::nullopt;
  }

 private:
  // Whether two ranks' traces lie apart in time, which those of two attempts do. O(ranks).
  bool any_apart() const {
    Nanos earliest_end = kNoTime;
    Nanos latest_begin = kNoTime;
    for (const auto& [rank, span] : spans_) {
      if (span.first == kNoTime) continue;
      earliest_end = earliest_end == kNoTime ? span.second : std::min(earliest_end, span.second);
      latest_begin = latest_begin == kNoTime ? span.first : std::max(latest_begin, span.first);
    }
    return earliest_end != kNoTime && latest_begin - earliest_end > 0;
  }

  bool overlap(Rank a, Rank b) const {
    const auto& [a_first, a_last] = spans_.at(a);
    const auto& [b_first, b_last] = spans_.at(b);
    return a_first != kNoTime && b_first != kNoTime && a_first <= b_last && b_first <= a_last;
  }

  Sides compare(GroupId group, const RankList& members) const {
    Sides out;
    std::vector<Times> first;
    for (const Rank rank : members) {
      const RankTrace* const trace = run_.find(rank);
      if (trace == nullptr || !trace->snapshot) continue;
      if (!out.with_first.empty() && overlap(rank, out.with_first.front())) {
        out.with_first.push_back(rank);
        continue;
      }
      std::vector<Times> times = times_in(*trace, group, run_.tables);
      if (times.empty()) continue;
      if (out.with_first.empty()) {
        first = std::move(times);
        out.with_first.push_back(rank);
        continue;
      }
      const Gap older = gap_between(times, first);
      const Gap newer = gap_between(first, times);
      const Gap gap =
          std::max(older, newer, [](const Gap& a, const Gap& b) { return a.length < b.length; });
      if (gap.length <= kClocksDiffer) {
        out.with_first.push_back(rank);
        continue;
      }
      out.apart.push_back(rank);
      if (gap.length > out.gap.length) {
        out.gap = gap;
        out.apart_is_older = older.length > newer.length;
      }
    }
    return out;
  }

  OtherAttempt describe(GroupId group, const Sides& sides) const {
    const bool tie = sides.apart.size() == sides.with_first.size();
    const bool apart_is_other =
        tie ? sides.apart_is_older : sides.apart.size() < sides.with_first.size();
    const std::vector<Rank>& other = apart_is_other ? sides.apart : sides.with_first;
    const std::vector<Rank>& own = apart_is_other ? sides.with_first : sides.apart;
    const bool older = apart_is_other == sides.apart_is_older;
    const std::vector<Rank>& before = older ? other : own;
    const std::vector<Rank>& after = older ? own : other;
    const RankTrace& first = *run_.find(before.front());
    const auto number = [&](std::uint32_t seq) { return seq + first.first_number; };
    const bool same = sides.gap.completed == sides.gap.issued;
    return {
        other,
        fmt::format("{} completed call {} of {} {} before {} issued {}", name_ranks(before),
                    number(sides.gap.completed), group_label(first, run_.tables, group),
                    duration_text(static_cast<double>(sides.gap.length) / 1e9), name_ranks(after),
                    same ? "it" : fmt::format("call {}", number(sides.gap.issued)))};
  }

  static std::string name_ranks(const std::vector<Rank>& ranks) {
    std::vector<std::int32_t> numbers;
    for (const Rank rank : ranks) numbers.push_back(rank.value);
    return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", folded_ranges(numbers));
  }

  const Run& run_;
  std::map<Rank, std::pair<Nanos, Nanos>> spans_;
};

}  // namespace

std::optional<OtherAttempt> find_other_attempt(const Run& run) {
  const bool snapshots =
      !run.ranks.empty() && std::all_of(run.ranks.begin(), run.ranks.end(),
                                        [](const RankTrace& trace) { return trace.snapshot; });
  return snapshots ? AttemptFinder(run).find() : std::nullopt;
}

}  // namespace lockstep::trace
