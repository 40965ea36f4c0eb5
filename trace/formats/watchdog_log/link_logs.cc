#include "trace/formats/watchdog_log/link_logs.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trace/formats/log_lines.h"
#include "trace/formats/watchdog_log/planned_calls.h"

namespace lockstep::trace {

namespace {

// Distinct timed-out numbers of one group. A hang has a few; many are the log of something else.
constexpr std::size_t kMaxNumbers = 64;

// The numbers of timed-out collectives, by group. Groups with very many are left out: such a log is
// not that of a job that ended by a timeout.
std::map<GroupId, std::set<std::int64_t>> failed_numbers(std::span<RankTrace> traces,
                                                         const Tables& tables) {
  std::map<GroupId, std::set<std::int64_t>> out;
  for (const RankTrace& trace : traces) {
    for (const Call& call : trace.calls) {
      if (!tables.is_message(call)) {
        out[call.group].insert(call.seq);
      }
    }
  }
  std::erase_if(out, [](const auto& group) { return group.second.size() > kMaxNumbers; });
  return out;
}

// How many of a group's collectives a rank issued and completed, by its counters and by the calls
// in which it hangs: the work of a group runs in order, so everything before the first of these
// completed.
struct Reached {
  bool known = false;
  std::int64_t issued = 0, completed = 0;
};
Reached reached(const RankTrace& trace, GroupId group, const Tables& tables) {
  Reached out;
  std::optional<std::int64_t> first;
  for (const Call& call : trace.calls) {
    const bool message = tables.is_message(call);
    if (message || call.group != group) continue;
    out.issued = std::max<std::int64_t>(out.issued, std::int64_t{call.seq} + 1);
    first = std::min<std::int64_t>(first.value_or(call.seq), call.seq);
  }
  out.known = first.has_value();
  out.completed = first.value_or(0);
  for (const RankTrace::Progress& progress : trace.progress) {
    if (progress.group != group) continue;
    const auto bounded = [](std::uint64_t n) {
      return static_cast<std::int64_t>(std::min<std::uint64_t>(n, INT32_MAX));
    };
    if (progress.enqueued) out.issued = std::max(out.issued, bounded(*progress.enqueued));
    if (progress.completed) out.completed = std::max(out.completed, bounded(*progress.completed));
    out.known |= progress.enqueued || progress.completed;
  }
  return out;
}

// Adds the last call that every rank completed, so that the calls after it are seen as incomplete.
void add_last_completed(std::map<GroupId, std::set<std::int64_t>>& numbers,
                        std::span<RankTrace> traces, Tables& tables) {
  const GroupId world = tables.groups.intern("world");
  for (auto& [group, failed] : numbers) {
    std::int64_t completed = INT64_MAX;
    for (const RankTrace& trace : traces) {
      const Reached r = reached(trace, group, tables);
      if (r.known) {
        completed = std::min(completed, r.completed);
      } else if (group == world) {
        completed = 0;  // a member of the group about which nothing is known
      }
    }
    if (completed > 0 && completed <= *failed.begin()) failed.insert(completed - 1);
  }
}

// The calls of a trace, to make it again.
std::vector<PlannedCall> planned_calls(const RankTrace& trace, const Tables& tables) {
  std::vector<PlannedCall> out;
  for (const Call& call : trace.calls)
    out.push_back({call.group, call.signature, call.seq, tables.is_message(call),
                   call.has(kCompleted), call.has(kWaitBegan)});
  return out;
}

// Adds the calls that timed out on other ranks and that this rank had issued by its own counters.
void add_issued(RankTrace& trace, const std::map<GroupId, std::set<std::int64_t>>& numbers,
                const Tables& tables) {
  std::vector<PlannedCall> planned = planned_calls(trace, tables);
  std::set<std::pair<GroupId, std::int64_t>> own;
  for (const Call& call : trace.calls)
    if (!tables.is_message(call)) own.emplace(call.group, call.seq);
  const std::size_t before = planned.size();
  for (const auto& [group, failed] : numbers) {
    const Reached r = reached(trace, group, tables);
    for (const std::int64_t seq : failed) {
      if (seq >= r.issued || own.contains({group, seq})) continue;
      planned.push_back({group, SignatureId{}, seq, false, seq < r.completed, false});
    }
  }
  if (planned.size() != before) rebuild(trace, std::move(planned));
}

// The members of a group by the group ranks of those that said something; those between them that
// said nothing included. Empty where there are none of the latter, or where the ranks leave a
// choice.
std::vector<Rank> members_with_silent(const std::map<std::int32_t, Rank>& by_group_rank) {
  std::vector<Rank> out;
  std::int32_t last_index = -1;
  std::int32_t last_rank = -1;
  for (const auto& [index, rank] : by_group_rank) {
    const std::int32_t between = index - last_index - 1;
    const std::int32_t room = rank.value - last_rank - 1;
    if (between != 0 && between != room) return {};
    if (room < 0) return {};
    for (std::int32_t r = rank.value - between; r <= rank.value; ++r) out.emplace_back(r);
    last_index = index;
    last_rank = rank.value;
  }
  return out.size() == by_group_rank.size() ? std::vector<Rank>() : out;
}

// Replaces the group ranks in traces' memberships by the members of the groups, where some said
// nothing. All other groups stay undeclared: further members may be silent.
void declare_silent_members(std::span<RankTrace> traces, Tables& tables) {
  const GroupId world = tables.groups.intern("world");
  std::map<GroupId, std::map<std::int32_t, Rank>> groups;
  std::set<GroupId> contradictory;
  for (RankTrace& trace : traces) {
    std::erase_if(trace.groups, [&](const RankTrace::Membership& own) {
      if (own.group == world) return false;  // NCCL's lines tell its members
      const auto index = number_after(tables.str(own.desc), "");
      if (!index) return true;
      const auto [known, is_new] =
          groups[own.group].emplace(static_cast<std::int32_t>(*index), trace.rank);
      if (!is_new && known->second != trace.rank) contradictory.insert(own.group);
      return true;
    });
  }
  for (const auto& [group, by_group_rank] : groups) {
    if (contradictory.contains(group)) continue;
    const std::vector<Rank> members = members_with_silent(by_group_rank);
    if (members.empty()) continue;
    const RankList ranks = tables.rank_lists.intern(members);
    for (RankTrace& trace : traces)
      if (ranks.contains(trace.rank)) trace.groups.push_back({group, ranks, StringId{}});
  }
}

// Splits groups that no message names (PyTorch before 2.2) by the call in which each rank waits
// first. In one group, who is past a call that others have not completed can only wait in the next
// one, because that needs these others, too. Numbers further apart are those of several groups.
void split_unnamed_groups(std::span<RankTrace> traces, Tables& tables) {
  std::map<GroupId, std::map<std::size_t, std::int64_t>> first;  // by trace
  for (std::size_t t = 0; t < traces.size(); ++t) {
    for (const Call& call : traces[t].calls) {
      const bool unnamed = tables.str(call.group).starts_with(kUnnamedGroup);
      if (!unnamed || tables.is_message(call)) continue;
      const std::int64_t seq = call.seq;
      const auto [known, is_new] = first[call.group].emplace(t, seq);
      if (!is_new) known->second = std::min(known->second, seq);
    }
  }
  for (const auto& [group, by_trace] : first) {
    std::vector<std::int64_t> numbers;
    for (const auto& [trace, seq] : by_trace) numbers.push_back(seq);
    std::sort(numbers.begin(), numbers.end());
    if (numbers.back() - numbers.front() <= 1) continue;
    const std::string name(tables.str(group));
    for (const auto& [trace, seq] : by_trace) {
      const GroupId own = tables.groups.intern(fmt::format("{}, from call {}", name, seq + 1));
      std::vector<PlannedCall> planned = planned_calls(traces[trace], tables);
      for (PlannedCall& call : planned)
        if (call.group == group) call.group = own;
      rebuild(traces[trace], std::move(planned));
    }
  }
}

}  // namespace

void link_watchdog_log(std::span<RankTrace> traces, Tables& tables) {
  split_unnamed_groups(traces, tables);
  declare_silent_members(traces, tables);
  auto numbers = failed_numbers(traces, tables);
  add_last_completed(numbers, traces, tables);
  for (RankTrace& trace : traces) add_issued(trace, numbers, tables);
}

}  // namespace lockstep::trace
