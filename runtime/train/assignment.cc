#include "runtime/train/assignment.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <tuple>

#include "base/check.h"

namespace lockstep {

std::vector<std::vector<std::size_t>> longest_first(std::span<const double> costs, int ranks) {
  LOCKSTEP_CHECK(ranks > 0, "somebody computes");
  std::vector<std::size_t> order(costs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return costs[a] > costs[b]; });

  using Load = std::tuple<double, std::size_t, std::size_t>;  // cost, items, rank
  std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank) {
    loads.emplace(0, 0, rank);
  }
  std::vector<std::vector<std::size_t>> items(static_cast<std::size_t>(ranks));
  for (const std::size_t item : order) {
    const auto [cost, count, rank] = loads.top();
    loads.pop();
    items[rank].push_back(item);
    loads.emplace(cost + costs[item], count + 1, rank);
  }
  for (auto& own : items) std::sort(own.begin(), own.end());
  return items;
}

double idle_share(std::span<const double> times) {
  if (times.empty()) return 0;
  const double largest = *std::max_element(times.begin(), times.end());
  const double sum = std::accumulate(times.begin(), times.end(), 0.0);
  return largest > 0 ? 1 - sum / (largest * static_cast<double>(times.size())) : 0;
}

}  // namespace lockstep
