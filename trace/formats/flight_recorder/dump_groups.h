// The groups of a Flight Recorder dump: their members, and how far the process came in each.
//
// pg_config names the groups and their members. pg_status is keyed by pg_id, which differs between
// ranks; entries connect it to a group's name.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trace/formats/flight_recorder/data_tree.h"
#include "trace/formats/flight_recorder/names.h"
#include "trace/ids.h"
#include "trace/run.h"
#include "trace/trace_builder.h"

namespace lockstep::trace {

// How PyTorch describes the group of all ranks.
inline constexpr std::string_view kDescriptionOfAll = "default_pg";

// What is known of a group while the entries of a dump are read, in their order.
struct DumpGroup {
  std::vector<Rank> members;  // empty: not known
  bool point_to_point = false;
  std::int64_t counted = 0;    // collectives so far, where the dump does not number them
  std::int64_t last = 0;       // the number of its last collective; 0: none
  std::int64_t last_op = 0;    // that call's number among all operations of the group; 0: not known
  std::int32_t own = kNone;    // group rank of the dump's rank, by its messages
  std::int32_t batch = kNone;  // the open batch of point-to-point calls
  std::vector<std::uint32_t> batch_calls;  // its calls, as indexes into RankTrace::calls
  std::uint64_t batch_seq = 0;             // the number that its calls share
  bool batched = false;                    // a batch of several calls, or the end of one, was read
  std::vector<std::uint32_t> without_end;  // calls of batches whose ends the dump left out
};

// Keeps references to its arguments; what is damaged is counted in `trace`.
class DumpGroups {
 public:
  DumpGroups(const DataTree& tree, VisitBudget& visits, DumpNames& names, Tables& tables,
             RankTrace& trace)
      : tree_(tree), visits_(visits), names_(names), tables_(tables), trace_(trace) {
    named_.resize(tree.string_count());
  }

  // pg_config: {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}, …}. The ranks
  // are a string. Adds the groups to the trace, by `builder`. O(bytes).
  void read_config(const DataTree::Value& config, TraceBuilder& builder);

  // pg_status: {"0": {"last_enqueued_collective": 12, "last_started_collective": 12,
  // "last_completed_collective": 11}, …}, as counts; -1 for none. After the entries. Its numbers
  // mix both counters where a group has point-to-point calls, so these are passed over.
  // O(groups log groups).
  void read_status(const DataTree::Value& status);

  // The last number that pg_status counts as enqueued for a group that entries linked.
  std::optional<std::uint64_t> enqueued(const DataTree::Value& status,
                                        const DumpGroup& group) const;

  // The group of an entry, by its process_group: ["22", "TENSOR_PARALLEL"]. Where no pg_config
  // lists it, as over Gloo, the description is a part of its name: "TENSOR_PARALLEL (22)". The
  // empty id where the first is no string.
  GroupId named(std::span<const DataTree::Value> process_group);
  DumpGroup& operator[](GroupId group) { return groups_[group]; }
  template <class Do>
  void for_each(Do&& work) {
    for (auto& [id, group] : groups_) work(group);
  }

  // An entry of this pg_id is of this group. False: earlier entries say another, and pg_config
  // does not know this one.
  bool link(std::int64_t pg_id, GroupId group);

  // How many ranks the job has at least, by a group without a name; 0: not known. Gloo's dumps
  // have one such group in pg_config, whose ranks are those within the group that was made last.
  std::int32_t least_world() const { return least_world_; }

 private:
  // Whether pg_config is that of Gloo, which lists one group without a name.
  bool is_of_gloo() const { return least_world_ > 0; }
  void link_the_rest(const std::vector<std::int64_t>& pg_ids);

  const DataTree& tree_;
  VisitBudget& visits_;
  DumpNames& names_;
  Tables& tables_;
  RankTrace& trace_;
  std::map<GroupId, DumpGroup> groups_;
  std::vector<std::optional<GroupId>> named_;  // by the name's number in the tree
  std::unordered_map<std::int64_t, GroupId> by_pg_id_;
  std::int32_t least_world_ = 0;
};

}  // namespace lockstep::trace
