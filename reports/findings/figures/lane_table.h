// LaneTable: what the per-rank picture of a finding shows, before it is drawn: a row per kind of
// rank, a column per call around the difference.
//
// Two views of a run:
// - by_sequence: the finding's group; columns are its sequence numbers. For differences
//   between ranks that should agree.
// - by_program_order: the last calls of every rank, whatever their group. For ranks that block each
//   other across groups or point-to-point.
//
// Ranks whose cells are all equal share a row, so the picture of 16,384 ranks is as high as the
// number of different behaviours. O(calls of the concerned ranks).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "trace/run.h"
#include "verify/report.h"

namespace lockstep::reports {

// The fields of a cell; each may become one of its lines.
enum LaneField : std::size_t {
  kOp,
  kWhere,
  kWhat,
  kSize,
  kRedop,
  kRoot,
  kSplits,
  kStep,      // where columns are compared
  kLocation,  // where nothing else tells the calls of the finding's column apart
  kLaneFields
};

inline constexpr std::uint32_t kNoLaneCall = UINT32_MAX;

struct LaneCell {
  enum class State : std::uint8_t {
    done,        // completed, or the source records no completion
    waits,       // the rank is blocked in this call
    pending,     // issued and not completed; the rank went on
    absent,      // no call here; another cell shows how the stream ends
    not_called,  // no call here: the rank never reached it
    waits_elsewhere,
    ended,
    raised,
    killed,
    interrupted,
    cut,
    lost,      // before the first event that a bounded buffer kept
    no_trace,  // the rank's trace is missing
  } state = State::absent;
  std::array<std::string, kLaneFields> fields;  // empty: not recorded
  std::string elsewhere;                        // waits_elsewhere: the group, or the operation
  bool size_is_own = false;  // sizes and splits may differ between ranks: an all-to-all
  // Index in the trace of the row's first rank. Not compared when ranks are folded into rows.
  std::uint32_t call = kNoLaneCall;

  bool has_call() const { return state <= State::pending; }
};

struct LaneRow {
  std::vector<trace::Rank> ranks;  // sorted
  std::vector<LaneCell> cells;
  bool culprit = false;  // its ranks are the finding's culprits
};

struct LaneTable {
  std::string title;
  std::vector<std::string> heads;       // one per column
  std::vector<LaneRow> rows;            // by first rank
  std::size_t focus = 0;                // the column of the finding
  bool compared = true;                 // the calls of a column should agree
  std::array<bool, kLaneFields> shown;  // fields that get a line
};

// `before` and `after`: columns around the finding's sequence number. Without rows if the finding
// has no group and number, or the run does not have that group.
LaneTable by_sequence(const verify::Finding& finding, const trace::Run& run, std::uint64_t before,
                      std::uint64_t after);

// The last `count` calls of the concerned ranks. Without rows if none of them is blocked in a call.
LaneTable by_program_order(const verify::Finding& finding, const trace::Run& run,
                           std::size_t count);

// Decides which fields get a line, by the columns that are left. The tables above have it done.
void choose_fields(LaneTable& table);

}  // namespace lockstep::reports
