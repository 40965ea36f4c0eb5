#include "sim/sweep/pareto.h"

#include <algorithm>
#include <numeric>

namespace lockstep::sweep {
namespace {

bool dominates(const Costs& a, const Costs& b) {
  bool better = false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] > b[i]) return false;
    better = better || a[i] < b[i];
  }
  return better;
}

}  // namespace

// In lexicographic order, what dominates stands before what it dominates: it is less where the two
// first differ. And what is dominated is dominated by one of the front. So each needs a look at the
// front of those before it only.
std::vector<std::size_t> pareto_front(const std::vector<Costs>& all) {
  std::vector<std::size_t> order(all.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return all[a] < all[b]; });
  std::vector<std::size_t> front;
  for (const std::size_t one : order) {
    if (std::none_of(front.begin(), front.end(),
                     [&](std::size_t other) { return dominates(all[other], all[one]); }))
      front.push_back(one);
  }
  std::sort(front.begin(), front.end());
  return front;
}

}  // namespace lockstep::sweep
