// The Pareto front: what nothing else beats in every respect.
#pragma once

#include <cstddef>
#include <vector>

namespace lockstep::sweep {

// What one choice costs in each respect; less is better. No NaN.
using Costs = std::vector<double>;

// The places of those that no other dominates: is no worse in every respect and better in one.
// Equals are all in it. All have as many respects. Ascending. O(n log n + n · front).
std::vector<std::size_t> pareto_front(const std::vector<Costs>& all);

}  // namespace lockstep::sweep
