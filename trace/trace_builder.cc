#include "trace/trace_builder.h"

#include <algorithm>

namespace lockstep::trace {

namespace {

std::uint8_t flag_of(EventKind kind) {
  switch (kind) {
    case EventKind::start:
      return kStarted;
    case EventKind::complete:
      return kCompleted;
    case EventKind::wait:
      return kWaitBegan;
    case EventKind::waited:
      return kWaitEnded;
    default:
      return 0;
  }
}

}  // namespace

bool is_possible_rank(std::int64_t rank, std::int64_t world_size) {
  return world_size > 0 && world_size <= kMaxWorldSize && rank >= 0 && rank < world_size;
}

TraceBuilder::Problem TraceBuilder::add_group(GroupId group, RankList ranks, StringId desc) {
  if (ranks.empty()) return "a group without ranks";
  if (!is_possible_rank(ranks.lowest().value, trace_.world_size) ||
      !is_possible_rank(ranks.highest().value, trace_.world_size)) {
    return "a rank of the group is not below world_size";
  }
  if (!ranks.distinct()) return "a rank is in the group twice";
  return declare({group, std::move(ranks), desc});
}

TraceBuilder::Problem TraceBuilder::add_unlinked(RankTrace::Membership membership) {
  return declare(std::move(membership));
}

TraceBuilder::Problem TraceBuilder::declare(RankTrace::Membership membership) {
  const auto [known, is_new] = declared_.emplace(membership.group, trace_.groups.size());
  if (!is_new) {
    const bool same = trace_.groups[known->second].ranks == membership.ranks;
    return same ? Problem{} : "the group was declared before with other ranks";
  }
  trace_.groups.push_back(std::move(membership));
  return {};
}

TraceBuilder::Next& TraceBuilder::next_in(GroupId group) {
  if (last_next_ == nullptr || last_group_ != group) {
    last_next_ = &next_[group];  // stays where it is when the map grows
    last_group_ = group;
  }
  return *last_next_;
}

TraceBuilder::Problem TraceBuilder::add_issue(const Call& call, bool point_to_point, Nanos time,
                                              Numbering numbering) {
  if (!trace_.calls.empty() && call.id <= trace_.calls.back().id) {
    return "the id does not grow";
  }
  Next& next = next_in(call.group);
  std::uint64_t& expected = point_to_point ? next.point_to_point : next.collective;
  if (numbering == Numbering::recorded) {
    // Point-to-point calls may come from several threads, which number them as they go.
    if (call.seq < expected && !point_to_point) return "the sequence number does not grow";
    if (expected == 0 && !point_to_point && trace_.dropped > 0) {
      trace_.first_seq.emplace(call.group, call.seq);
    }
    expected = call.seq;
    recorded_ = true;
  }
  trace_.occurs.messages |= point_to_point;
  trace_.occurs.parameters |= call.what.value != 0;
  trace_.occurs.threads |= call.thread != 0;
  trace_.events.push_back(
      {time, static_cast<std::uint32_t>(trace_.calls.size()), EventKind::issue});
  std::vector<Call>& calls = trace_.calls.own();
  calls.push_back(call);
  calls.back().seq = static_cast<std::uint32_t>(expected);
  ++expected;
  return {};
}

Call* TraceBuilder::find_call(std::int64_t id) {
  std::vector<Call>& calls = trace_.calls.own();
  if (calls.empty() || id < calls.front().id || id > calls.back().id) return nullptr;
  if (calls.back().id == id) return &calls.back();
  // Ids without gaps are an index.
  const auto guess = static_cast<std::size_t>(id - calls.front().id);
  if (guess < calls.size() && calls[guess].id == id) return &calls[guess];
  // Most events concern a call that was issued a little before: widen the search from the end.
  std::size_t width = 1;
  while (width < calls.size() && calls[calls.size() - width].id > id) width *= 2;
  const auto begin = calls.end() - static_cast<std::ptrdiff_t>(std::min(width, calls.size()));
  const auto found = std::lower_bound(begin, calls.end(), id,
                                      [](const Call& c, std::int64_t i) { return c.id < i; });
  return found->id == id ? &*found : nullptr;
}

std::uint32_t TraceBuilder::index_of(const Call& call) const {
  return static_cast<std::uint32_t>(&call - trace_.calls.data());
}

TraceBuilder::Problem TraceBuilder::add_call_event(EventKind kind, std::int64_t id, Nanos time) {
  Call* call = find_call(id);
  if (call == nullptr) {
    const bool issued_before_the_rest = trace_.calls.empty() || id < trace_.calls.front().id;
    if (trace_.dropped > 0 && issued_before_the_rest) return {};
    return "no call with that id was issued before";
  }
  const std::uint8_t flag = flag_of(kind);
  call->flags = static_cast<std::uint8_t>(call->flags | flag);
  trace_.occurs.waits |= (flag & (kWaitBegan | kWaitEnded)) != 0;
  trace_.occurs.accesses |= kind == EventKind::use || kind == EventKind::write;
  trace_.events.push_back({time, index_of(*call), kind});
  return {};
}

void TraceBuilder::finish() {
  if (trace_.dropped > 0 && !recorded_) number_by_ids();
}

// A source that does not record sequence numbers, but counts all calls from 0 in `id`: with one
// group and nothing else, a call's id is its index in that group.
void TraceBuilder::number_by_ids() {
  std::vector<Call>& calls = trace_.calls.own();
  if (calls.empty() || next_.size() != 1 || trace_.occurs.messages) return;
  const std::int64_t first = calls.front().id;
  const std::int64_t last = calls.back().id;
  const bool dense = last - first == static_cast<std::int64_t>(calls.size()) - 1;
  if (!dense || last > UINT32_MAX) return;
  for (Call& call : calls) call.seq = static_cast<std::uint32_t>(call.id);
  trace_.first_seq.emplace(calls.front().group, static_cast<std::uint64_t>(first));
}

}  // namespace lockstep::trace
