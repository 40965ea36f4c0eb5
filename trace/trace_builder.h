// TraceBuilder: assembles a rank's events in program order, for the readers of all formats.
//
// It maintains the invariants of RankTrace that concern several records: ids grow, an event refers
// to an issued call, calls are numbered per group, flags agree with the events. It returns why it
// refuses a record, so that the reader can count the record as damaged; it never fails otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "trace/run.h"

namespace lockstep::trace {

// The largest accepted world size. It is a single number in a file, but judging costs 90 bytes and
// a line of the report for every missing rank. A million ranks are more than any job had.
inline constexpr std::int32_t kMaxWorldSize = 1 << 20;

// Whether 0 <= rank < world_size <= kMaxWorldSize.
bool is_possible_rank(std::int64_t rank, std::int64_t world_size);

class TraceBuilder {
 public:
  // Fills `trace`, whose header fields (rank, world_size, dropped, …) must be set. It must outlive
  // the builder.
  explicit TraceBuilder(RankTrace& trace) : trace_(trace) {
    trace.occurs = {false, false, false, false, false};
  }

  // Why a record cannot be used; empty where it was added.
  using Problem = std::string_view;

  // Declares a group. A repeated declaration is accepted; the same name with other ranks is not.
  Problem add_group(GroupId group, RankList ranks, StringId desc);

  // The same for an unlinked membership (groups.h).
  Problem add_unlinked(RankTrace::Membership membership);

  enum class Numbering : std::uint8_t {
    count,     // the builder counts, from 0
    recorded,  // Call::seq is set; it must grow within its group
  };
  // Adds a call with its issue event.
  Problem add_issue(const Call& call, bool point_to_point, Nanos time, Numbering numbering);

  // Adds an event of a call: start, complete, wait, waited, use or write. Events of calls whose
  // issue a bounded buffer dropped are ignored.
  Problem add_call_event(EventKind kind, std::int64_t id, Nanos time);

  // The call with that id, or nullptr.
  Call* find_call(std::int64_t id);
  std::uint32_t index_of(const Call& call) const;

  // Adds an event with its data. `side_table`: of `trace`, a std::vector or a Column.
  template <class SideTable>
  void add_mark(EventKind kind, SideTable& side_table, typename SideTable::value_type mark,
                Nanos time) {
    trace_.events.push_back({time, static_cast<std::uint32_t>(side_table.size()), kind});
    side_table.push_back(std::move(mark));
  }

  // Call it once, after the last record: it finds where streams begin whose oldest events were
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
  bool recorded_ = false;
};

}  // namespace lockstep::trace
