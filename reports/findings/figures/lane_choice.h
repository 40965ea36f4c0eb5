// What a picture shows of a LaneTable: which of its two views, which of its rows, and which calls
// stand out. Shared by the pictures for terminals and for browsers.
#pragma once

#include <cstddef>
#include <string_view>

#include "reports/findings/figures/lane_table.h"

namespace lockstep::reports {

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
