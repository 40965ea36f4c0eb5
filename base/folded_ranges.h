// Lists of ranks as people read them.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace lockstep {

// Sorted integers as ranges, "0-3,7", like ranges() (base/text.h). What repeats is folded, because
// the ranks of a group of a large job are rarely neighbours:
//
//   5, 13, 21 … 1021       "5,13,...,1021 (every 8th)"
//   0-7, 64-71 … 960-967   "0-7,64-71,...,960-967 (8 of every 64)"
//   the first without 501  "5,13,...,1021 (every 8th but 501)"
//
// For people only: programs read ranges().
std::string folded_ranges(std::span<const std::int32_t> sorted);

}  // namespace lockstep
