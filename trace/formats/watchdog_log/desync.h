// PyTorch's desync report, which a rank writes when a call timed out and TORCH_NCCL_DESYNC_DEBUG
// (before 2.2: NCCL_DESYNC_DEBUG) is set: how far each rank of a group got, as the ranks wrote it
// to the store. Internal to the reader of the watchdog's messages.
//
//   [rank0]:[E… ProcessGroupNCCL.cpp:2025] [PG ID 0 PG GUID 0(default_pg) Rank 0]
//     - [0] Timeout at collective: ALLREDUCE, #29
//     - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:
//       - [1] joined but didn't finish collective #28 (count from 1)
//     - Snapshot of ranks' latest states:
//       #29 started ranks:
//         [0, 2] started ALLREDUCE
//       #28 finished ranks:
//         [1] finished ALLREDUCE
//
// Ranks are those of the group. Where some wrote nothing, "ranks [4] are the lagging ranks that
// caused this timeout. They never joined any collectives" stands in place of all but the first
// line.
//
// Source: pytorch torch/csrc/distributed/c10d/TraceUtils.h (retrieveDesyncReport).
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "trace/ids.h"

namespace lockstep::trace {

// The last call in which a rank is, or which it finished.
struct DesyncState {
  std::int64_t seq = 0;  // from 1; 0: it never came to any
  bool finished = true;
  std::string op;  // as PyTorch writes it, "ALLREDUCE"

  bool is_before(const DesyncState& other) const {
    return seq != other.seq ? seq < other.seq : !finished && other.finished;
  }
};

// What the reports of a file say about one group.
struct DesyncGroup {
  std::map<std::int32_t, DesyncState> ranks;  // by group rank
  // How many ranks the group has, where a report lists all of them.
  std::int32_t size = 0;
};

class DesyncReports {
 public:
  // What the line holds in which a report begins.
  static constexpr std::string_view kBegin = "] Timeout at collective: ";

  // Takes the next line of the log, of any kind. `may_begin`: it may hold kBegin. O(line).
  void take(std::string_view line, bool may_begin);

  // By the name that the watchdog gives the group; "" where the log does not name it (before
  // PyTorch 2.2). Call it after the last line.
  const std::map<std::string, DesyncGroup>& groups() const { return groups_; }

 private:
  void begin(std::string_view report, std::string_view line);
  bool take_section(std::string_view line);
  bool take_states(std::string_view line);
  void take_missing(std::string_view line);
  void raise(std::int32_t rank, DesyncState state);

  std::map<std::string, DesyncGroup> groups_;
  std::string_view previous_;       // line: it may name the group of the report that follows
  DesyncGroup* current_ = nullptr;  // whose report is being read
  std::int64_t seq_ = kNone;        // of the current section of its snapshot
  // The ranks that the snapshot lists. Other processes' lines may be among its own, so that
  // it is whole where it lists all of 0 to its highest and something else follows.
  std::set<std::int32_t> listed_;
};

}  // namespace lockstep::trace
