#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace lockstep {

// The median; of an even number of values the upper one of the middle two, of none 0. O(values).
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace lockstep
