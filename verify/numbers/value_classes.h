// Which ranks hold the same value.
#pragma once

#include <cstdint>
#include <vector>

#include "verify/numbers/value_table.h"

namespace lockstep {

struct ValueClasses {
  // Rank indices by equal value: the largest class first, then the one of the lowest rank.
  std::vector<std::vector<std::uint32_t>> classes;

  bool differ() const { return classes.size() > 1; }
  // Those outside of the largest class, where that is more than half of all; else nobody.
  std::vector<std::uint32_t> minority() const;
};

// Compares a row's hashes; where they were not recorded its norms, which differ when they are
// further apart than the order of summation can make them (equal norms are taken for equal values).
// Ranks that recorded neither are left out. O(readings log readings).
ValueClasses classes_of(const Run& run, const ValueRow& row);

}  // namespace lockstep
