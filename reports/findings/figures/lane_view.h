// What a picture shows of a LaneTable: which view, which rows, and which calls stand out. Shared by
// the pictures for terminals (lanes.h) and for browsers (lane_figure.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "reports/findings/figures/lane_table.h"
#include "trace/run.h"
#include "verify/report.h"

namespace lockstep::reports {

struct LaneWindow {
  std::uint64_t before = 2, after = 2;  // columns around the difference
  std::size_t last = 3;                 // columns in program order
};

// True for findings about ranks that block each other across groups or point-to-point: program
// order shows these best.
bool seen_in_program_order(const verify::Finding& finding);

// The view that shows the finding best: program order, or around its number in the group's
// sequence. Without rows if there is nothing to draw.
LaneTable choose_lanes(const verify::Finding& finding, const trace::Run& run,
                       const LaneWindow& window);

// Keeps at most `most` rows, at least 2: culprits first, then rows of most ranks, but never
// culprits alone. Returns the number of ranks in the removed rows.
std::size_t limit_rows(LaneTable& table, std::size_t most);

// Removes the column that is farthest from the difference; on equal distance one after it. True: it
// was the first one.
bool drop_farthest_column(LaneTable& table);

// True if the row's call differs from the call that most others made in its column. Always false if
// columns are not compared.
bool stands_out(const LaneTable& table, const LaneRow& row, std::size_t column);

// "67108864 f32" for "67108864 float32": where a cell has no room for a size in full. A size is
// never cut.
std::string short_size(std::string_view size);

// A line of a cell in that many columns. An operation's name keeps its beginning, which says most:
// reduce_scatter_tensor would look like a reduce.
std::string fitted(const LaneCell& cell, const std::string& line, std::size_t width);

// "waits", "never called" …; empty if there is nothing to say.
std::string_view describe_state(LaneCell::State state);

}  // namespace lockstep::reports
