#include "trace/formats/flight_recorder/link_dumps.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"
#include "base/threads.h"
#include "trace/formats/flight_recorder/dump_groups.h"
#include "trace/groups.h"
#include "trace/signature.h"
#include "trace/trace_builder.h"

namespace lockstep::trace {

namespace {

// By group: how many calls some rank saw completed, so that all members must have issued them.
std::map<GroupId, std::uint64_t> completed_calls(std::span<const RankTrace> traces,
                                                 const Tables& tables) {
  std::map<GroupId, std::uint64_t> completed;
  for (const RankTrace& trace : traces) {
    for (const Call& call : trace.calls) {
      if (!completes_together(tables.op(call))) continue;
      std::uint64_t& count = completed[call.group];
      if (call.has(kCompleted)) count = std::max<std::uint64_t>(count, call.seq + std::uint64_t{1});
    }
  }
  return completed;
}

// Completes dumps of a job that uses nothing but Gloo. They were taken at some moment of a process
// that may continue. Only the members of the default group are known: all ranks. A
// rank that had not issued a call that completed elsewhere was dumped before: its dump does not
// show what it did since. O(calls).
void link_gloo_dumps(std::span<RankTrace> traces, Tables& tables, std::int32_t world) {
  constexpr std::string_view kDefaultGroup = "0";  // PyTorch counts the groups of a process
  constexpr std::size_t kNamed = 8;                // ranks in the message
  const std::map<GroupId, std::uint64_t> completed = completed_calls(traces, tables);
  std::vector<Rank> all;
  for (std::int32_t r = 0; r < world; ++r) all.emplace_back(r);
  const StringId description = tables.strings.intern(std::string(kDescriptionOfAll));
  std::set<Rank> early;
  std::string example;
  for (RankTrace& trace : traces) {
    trace.backend = "gloo";
    trace.progress.clear();
    trace.end = End::cut;
    std::map<GroupId, std::uint64_t> issued;
    for (const auto& [group, count] : completed) {
      if (tables.str(group) != kDefaultGroup) continue;
      issued[group] = 0;  // a member, whether or not it issued anything
      if (membership(trace, group) == nullptr) trace.groups.push_back({group, all, description});
    }
    for (const Call& call : trace.calls) issued[call.group] = call.seq + std::uint64_t{1};
    for (const auto& [group, count] : issued) {
      const auto ahead = completed.find(group);
      if (ahead == completed.end() || ahead->second <= count) continue;
      if (example.empty()) {
        example =
            fmt::format("call {} of {} had completed elsewhere when rank {} had not issued it",
                        ahead->second, group_label(trace, tables, group), trace.rank.value);
      }
      trace.open_ended = true;
    }
    if (trace.open_ended) early.insert(trace.rank);
  }
  if (early.empty()) return;
  std::vector<std::string> names;
  for (const Rank rank : early) names.push_back(std::to_string(rank.value));
  const std::string why = fmt::format(
      "the dumps were not taken at one moment: {}; what {} {} did after {} is not in {}. Take them "
      "again, all at once",
      example, early.size() == 1 ? "rank" : "ranks", join_and(names, kNamed),
      early.size() == 1 ? "its dump" : "their dumps", early.size() == 1 ? "it" : "them");
  for (RankTrace& trace : traces) {
    if (trace.open_ended) trace.inconclusive = why;
  }
}

// Whether the host had issued more calls than its ring holds before one of those completed. By such
// a ring alone its oldest call has been open since it was issued, however long it was queued.
bool holds_queued_calls_alone(const RankTrace& trace) {
  return trace.dropped > 0 && trace.longest_open > 0 && trace.written != kNoTime &&
         std::none_of(trace.calls.begin(), trace.calls.end(),
                      [](const Call& call) { return call.has(kCompleted); });
}

// When the newest of a group's collectives completed that did so on any rank.
struct Newest {
  std::uint32_t seq = 0;
  Nanos completed = kNoTime;
};

// Takes from the others' rings when the calls before such a ring's completed; where they do not
// tell, that ring says nothing of how long calls are open. O(events) where there is one.
void shorten_waits_of_queued(std::span<RankTrace> traces, const Tables& tables) {
  if (std::none_of(traces.begin(), traces.end(), holds_queued_calls_alone)) return;
  std::map<GroupId, Newest> newest;
  for (const RankTrace& trace : traces) {
    for (const Event& event : trace.events) {
      if (event.kind != EventKind::complete || event.time < 0) continue;
      const Call& call = trace.calls[event.index];
      if (!completes_together(tables.op(call))) continue;
      Newest& known = newest[call.group];
      known.seq = std::max(known.seq, call.seq);
      known.completed = std::max(known.completed, event.time);
    }
  }
  std::vector<RankTrace*> untold;
  untold.reserve(traces.size());
  bool any_told = false;
  for (RankTrace& trace : traces) {
    if (holds_queued_calls_alone(trace)) {
      const Call& first = trace.calls.front();
      const auto before = newest.find(first.group);
      if (before == newest.end() || before->second.seq >= first.seq || tables.is_message(first)) {
        untold.push_back(&trace);
        continue;
      }
      const Nanos open = trace.written - before->second.completed;
      trace.longest_open = std::min(trace.longest_open, std::max<Nanos>(open, 0));
    }
    any_told = any_told || trace.longest_open > 0;
  }
  for (RankTrace* const trace : untold)
    if (any_told) trace->longest_open = 0;
}

// What a dump uses, and the size that its job has at least.
struct Uses {
  std::int32_t world = 0;
  std::set<GroupId> groups, point_to_point;
};

Uses uses_of(const RankTrace& trace, const Tables& tables) {
  Uses out;
  out.world = trace.rank.value + 1;
  if (trace.world_size < kMaxWorldSize) out.world = std::max(out.world, trace.world_size);
  for (const auto& membership : trace.groups)
    out.world = std::max(out.world, membership.ranks.highest().value + 1);
  GroupId last;
  for (const Call& call : trace.calls) {
    if (call.group != last || out.groups.empty()) out.groups.insert(call.group);
    last = call.group;
    if (!trace.occurs.messages) continue;
    out.world = std::max(out.world, call.peer.value + 1);
    if (tables.is_message(call)) out.point_to_point.insert(call.group);
  }
  return out;
}

}  // namespace

void link_dumps(std::span<RankTrace> traces, Tables& tables) {
  // What each trace shows by itself; its world is the largest rank of any file name, group or peer,
  // plus one.
  std::vector<Uses> by_trace(traces.size());
  std::size_t calls = 0;
  for (const RankTrace& trace : traces) calls += trace.calls.size();
  for_each_index(traces.size(), calls,
                 [&](std::size_t t) { by_trace[t] = uses_of(traces[t], tables); });
  std::int32_t world = 0;
  std::map<GroupId, std::vector<Rank>> users, listed;
  std::set<GroupId> point_to_point;
  for (std::size_t t = 0; t < traces.size(); ++t) {
    world = std::max(world, by_trace[t].world);
    for (const auto& membership : traces[t].groups)
      listed.try_emplace(membership.group, membership.ranks);
    for (const GroupId group : by_trace[t].groups) users[group].push_back(traces[t].rank);
    point_to_point.merge(by_trace[t].point_to_point);
  }
  for (auto& [group, ranks] : users) std::sort(ranks.begin(), ranks.end());
  const auto gloo_or_empty = [](const RankTrace& trace) {
    return trace.backend == "gloo" || trace.backend.empty();
  };
  const bool any_gloo = std::any_of(traces.begin(), traces.end(),
                                    [](const RankTrace& t) { return t.backend == "gloo"; });
  const bool gloo = any_gloo && std::all_of(traces.begin(), traces.end(), gloo_or_empty);
  if (gloo) link_gloo_dumps(traces, tables, world);
  shorten_waits_of_queued(traces, tables);
  for (RankTrace& trace : traces) {
    trace.world_size = world;
    if (gloo) continue;
    // An empty backend: a dump without entries, which shows neither. The others show NCCL.
    if (trace.backend.empty()) trace.backend = "nccl";
    // For these groups, pg_status counts messages and collectives together. Another rank's dump may
    // be the one that shows the messages.
    std::erase_if(trace.progress, [&](const RankTrace::Progress& progress) {
      return point_to_point.contains(progress.group);
    });
    // A group that no pg_config lists has the ranks that used it as members.
    std::set<GroupId> own;
    for (const auto& membership : trace.groups) own.insert(membership.group);
    for (const auto& [group, ranks] : users) {
      if (own.contains(group) || listed.contains(group)) continue;
      if (!std::binary_search(ranks.begin(), ranks.end(), trace.rank)) continue;
      trace.groups.push_back({group, ranks, {}});
    }
  }
}

}  // namespace lockstep::trace
