// The cost of an image and of a text on a rank, fitted to measured steps:
//
//   milliseconds = step + image * images + text * texts,   none of them negative
//
// The fit is least squares with Huber's weights (1964, doi:10.1214/aoms/1177703732), so that a step
// that the system disturbed counts little. If all observations hold the same number of texts,
// `step` and `text` cannot be told apart. The fit then attributes the time to the texts, which is
// what a split needs.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <span>
#include <vector>

namespace lockstep::runtime {

struct ItemCosts {
  double image = 0, text = 0;  // milliseconds each
  double step = 0;             // milliseconds, independent of the batch
};

// One rank's step.
struct CostObservation {
  double images = 0, texts = 0;
  double ms = 0;  // spent computing
};

// Returns nothing for fewer than three observations, or if the fit says that no item costs
// anything. Cost: O(observations). Deterministic: the same observations in the same order give the
// same bits.
std::optional<ItemCosts> fit_costs(std::span<const CostObservation> observations);

// The last observations of all ranks, and the costs fitted to them.
class CostModel {
 public:
  void add(const CostObservation& observation);
  const std::optional<ItemCosts>& costs() const { return costs_; }
  // Fits again. Without a result, the old costs stay.
  void fit();

 private:
  static constexpr std::size_t kWindow = 512;  // observations kept; older ones are out of date
  std::deque<CostObservation> window_;
  std::optional<ItemCosts> costs_;
};

// Distributes items over ranks so that the ranks finish at about the same time.
//
// Longest processing time first (Graham, 1969, doi:10.1137/0117039): the items in order of falling
// cost, each to the rank with the least load so far. The longest rank then takes at most 4/3 - 1/(3
// m) times as long as in the best split over m ranks, and at most one item's cost longer than any
// other rank.

// The items of each rank, as ascending indices in `costs`. Ties go to the rank with fewer items,
// then to the lower rank, so every rank gets an item if there are enough. `ranks` >= 1, costs >= 0.
// Deterministic. Cost: O(items log items).
std::vector<std::vector<std::size_t>> longest_first(std::span<const double> costs, int ranks);

// The share of the ranks' time that is spent waiting for the slowest: 1 - mean / largest. 0 if
// nothing takes any time.
double idle_share(std::span<const double> times);

}  // namespace lockstep::runtime
