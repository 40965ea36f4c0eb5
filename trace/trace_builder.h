// TraceBuilder: puts a rank's events together in program order, for every reader of a format.
//
// It keeps the invariants of RankTrace that no single record can show: ids grow, an event refers to
// a call that was issued, calls are numbered per group, flags follow the events. What it refuses it
// names, so that the reader can count a damaged record; it never fails otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trace/run.h"

namespace lockstep::trace {

// The size of a world is one number in a file, and judging costs what it is (90 bytes and a line of
// the report for every rank that is missing). A million ranks are more than any job had.
inline constexpr std::int32_t kMaxWorldSize = 1 << 20;

// True for a rank that can be: 0 <= rank < world_size <= kMaxWorldSize.
bool is_possible_rank(std::int64_t rank, std::int64_t world_size);

class TraceBuilder {
 public:
  // Fills `trace`, whose header fields (rank, world_size, dropped, …) are set already, and which
  // must outlive the builder.
  explicit TraceBuilder(RankTrace& trace) : trace_(trace) {}

  // Each returns why the record cannot be used; empty: it was taken.
  using Problem = std::string_view;

  // The same declaration twice is fine; the same name with other ranks is not.
  Problem add_group(GroupId group, RankList ranks, StringId desc);

  // The same for a membership that groups.h made.
  Problem add_unlinked(RankTrace::Membership membership);

  enum class Numbering : std::uint8_t {
    count,     // Call::seq is counted here, from 0
    recorded,  // Call::seq stands in the record; it must grow within its group
  };
  Problem add_issue(const Call& call, bool point_to_point, Nanos time, Numbering numbering);

  // start, complete, wait, waited, use, write. Events of calls whose issue was lost to a bounded
  // buffer are passed over.
  Problem add_call_event(EventKind kind, std::int64_t id, Nanos time);

  // The call with that id, or nullptr.
  Call* find_call(std::int64_t id);
  std::uint32_t index_of(const Call& call) const;

  template <class Mark>
  void add_mark(EventKind kind, std::vector<Mark>& side_table, Mark mark, Nanos time) {
    trace_.events.push_back({time, static_cast<std::uint32_t>(side_table.size()), kind});
    side_table.push_back(std::move(mark));
  }

  // Call once, after the last record: finds where the streams begin when the oldest events were
  // dropped (RankTrace::first_seq).
  void finish();

 private:
  // The next number in a group, collectives and point-to-point apart.
  struct Next {
    std::uint64_t collective = 0;
    std::uint64_t point_to_point = 0;
  };
  Problem declare(RankTrace::Membership membership);
  Next& next_in(GroupId group);
  void number_by_ids();

  RankTrace& trace_;
  std::unordered_map<GroupId, std::size_t> declared_;  // index into trace_.groups
  std::unordered_map<GroupId, Next> next_;
  GroupId last_group_;
  Next* last_next_ = nullptr;  // next_[last_group_]: most calls follow one of the same group
  bool any_point_to_point_ = false;
  bool recorded_ = false;
};

}  // namespace lockstep::trace
