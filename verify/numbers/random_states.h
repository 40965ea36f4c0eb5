// Ranks that draw the same random numbers although each must draw its own, such as dropout on the
// parts of an activation that a tensor-parallel group holds.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "verify/numbers/value_table.h"

namespace lockstep::verify {

struct EqualRandom {
  std::int64_t n = 0;                // the first step that shows it
  std::vector<std::uint32_t> ranks;  // rank indices whose generators are in one state then, sorted
};

// Compares the states of generators that the program declares to be different (kDifferentRandom).
// Nothing if all differ in every step, or if none were recorded. O(marks log ranks).
std::optional<EqualRandom> find_equal_random(const trace::Run& run, const ValueTable& table);

}  // namespace lockstep::verify
