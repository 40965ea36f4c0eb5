// LaneTable: what the per-rank picture of a finding shows, before it is drawn: a row per kind of
// rank, a column per call around the difference.
//
// Two views of a run:
// - by_sequence: the finding's group, the columns are the places in its sequence. For what differs
//   between ranks that should agree.
// - by_program_order: the last calls of every rank, whatever their group. For ranks that block one
//   another across groups or point-to-point.
//
// Ranks whose cells are all equal share a row, so the picture of 16,384 ranks is as high as the
// number of different behaviours. O(calls of the concerned ranks).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trace/run.h"
#include "verify/report.h"

namespace lockstep::reports {

// What a cell says of one call; each field may become a line of it.
enum LaneField : std::size_t { kOp, kWhere, kWhat, kSize, kRedop, kRoot, kSplits, kLaneFields };

inline constexpr std::uint32_t kNoLaneCall = UINT32_MAX;

struct LaneCell {
  enum class State : std::uint8_t {
    done,        // nothing to say: the call completed, or the source records no completion
    waits,       // the rank is blocked in this call
    pending,     // issued, not completed, the rank went on
    absent,      // no call here, and the stream's end is told elsewhere
    not_called,  // no call here: the rank never came to it
    waits_elsewhere,
    ended,
    raised,
    killed,
    cut,
    lost,      // before the first event that a bounded buffer kept
    no_trace,  // the rank's trace is missing
  } state = State::absent;
  std::array<std::string, kLaneFields> fields;  // empty: not recorded
  std::string elsewhere;                        // waits_elsewhere: the group, or "send to 3"
  // The call, in the trace of the row's first rank. Ranks share a row whatever it is.
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
  std::size_t focus = 0;                // the column that the finding is about
  bool compared = true;                 // the calls of one column should agree
  std::array<bool, kLaneFields> shown;  // fields that are worth a line
};

// `before` and `after`: columns around the finding's place. Empty (no rows) where the finding has
// no group and place, or the run does not have that group.
LaneTable by_sequence(const verify::Finding& finding, const trace::Run& run, std::uint64_t before,
                      std::uint64_t after);

// The last `count` calls of the concerned ranks. Empty where none of them is blocked in a call.
LaneTable by_program_order(const verify::Finding& finding, const trace::Run& run,
                           std::size_t count);

// What a picture shows of a LaneTable: which of its two views, which of its rows, and which calls
// stand out. Shared by the pictures for terminals and for browsers.

struct LaneWindow {
  std::uint64_t before = 2, after = 2;  // columns around the difference
  std::size_t last = 3;                 // columns where ranks are shown in program order
};

// True for ranks that block one another in several groups or point-to-point, which are seen best in
// program order.
bool seen_in_program_order(const verify::Finding& finding);

// The view that shows the finding best: program order, or around its place in the group's sequence.
// Without rows where there is nothing to draw.
LaneTable choose_lanes(const verify::Finding& finding, const trace::Run& run,
                       const LaneWindow& window);

// Keeps `most` rows, at least 2: culprits first, then those that most ranks share, never culprits
// alone. Gives the number of ranks in the others.
std::size_t limit_rows(LaneTable& table, std::size_t most);

// True where the row's call is not the one that most others of its column made. Always false where
// columns are not compared.
bool stands_out(const LaneTable& table, const LaneRow& row, std::size_t column);

// "waits", "never called" …; empty where there is nothing to say.
std::string_view state_words(LaneCell::State state);

}  // namespace lockstep::reports
