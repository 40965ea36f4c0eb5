// Which ranks hold the same value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/run.h"
#include "verify/numbers/value_table.h"

namespace lockstep::verify {

// The ranks grouped by the value that they hold.
struct ValueClasses {
  // Rank indices by equal value: the largest class first, then by lowest rank.
  std::vector<std::vector<std::uint32_t>> classes;

  bool differ() const { return classes.size() > 1; }
  // The ranks outside the largest class, if that holds more than half of all; otherwise none.
  std::vector<std::uint32_t> minority() const;
};

// Groups a row's ranks by hash; without hashes by norm. Norms differ if they are further apart than
// the order of summation can explain; equal norms are taken for equal values. Ranks that recorded
// neither are left out. O(readings log readings).
ValueClasses classes_of(const trace::Run& run, const ValueRow& row);

// "rank 1 against ranks 0, 2-4".
std::string describe_sides(const trace::Run& run, const ValueRow& row);

}  // namespace lockstep::verify
