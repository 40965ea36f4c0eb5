// Arithmetic with sketches (trace/fingerprint.h): short vectors, one for a tensor.
#pragma once

#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

namespace lockstep {

using Sketch = std::vector<double>;

// Of equal length.
inline double dot(const Sketch& a, const Sketch& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// a + factor · b; of equal length.
inline Sketch sum(Sketch a, const Sketch& b, double factor = 1) {
  for (std::size_t j = 0; j < a.size(); ++j) a[j] += factor * b[j];
  return a;
}

// The 2-norm of the tensor, estimated: the mean square of sums with random signs is its square.
inline double norm_estimate(const Sketch& s) {
  return s.empty() ? 0 : std::sqrt(dot(s, s) / static_cast<double>(s.size()));
}

}  // namespace lockstep
