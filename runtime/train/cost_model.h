// What an image and a text cost a rank, learned from measured steps:
//
//   milliseconds = step + image * images + text * texts,   none of them negative
//
// The fit is least squares with Huber's weights (1964, doi:10.1214/aoms/1177703732), so that a step
// that the system disturbed counts little. Where all observations hold as many texts, `step` and
// `text` cannot be told apart; the fit then says that texts cost and the step does not, which is
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
  double step = 0;             // milliseconds, whatever the batch holds
};

// One rank's step.
struct CostObservation {
  double images = 0, texts = 0;
  double ms = 0;  // spent computing
};

// Nothing where there are fewer than three observations, or where they say that no item costs
// anything. Cost: O(observations). The same observations in the same order give the same bits.
std::optional<ItemCosts> fit_costs(std::span<const CostObservation> observations);

// The last observations of all ranks, and what they say.
class CostModel {
 public:
  void add(const CostObservation& observation);
  const std::optional<ItemCosts>& costs() const { return costs_; }
  // Fits again. Where that gives nothing, the costs stay.
  void fit();

 private:
  static constexpr std::size_t kWindow = 512;  // what the costs were long ago says little
  std::deque<CostObservation> window_;
  std::optional<ItemCosts> costs_;
};

// Which rank computes which item, so that the ranks finish at about the same time.
//
// Longest processing time first (Graham, 1969, doi:10.1137/0117039): the items in order of falling
// cost, each to the rank that has least so far. The longest rank then takes at most 4/3 - 1/(3 m)
// times what it would in the best of all splits over m ranks, and at most one item's cost more than
// any other rank.

// The items of each rank, as places in `costs`, ascending. Ties go to the rank with fewer items,
// then to the lower one, so every rank gets an item where there are as many. `ranks` >= 1, costs
// >= 0. Deterministic. Cost: O(items log items).
std::vector<std::vector<std::size_t>> longest_first(std::span<const double> costs, int ranks);

// Of the time of `ranks` that wait for the longest of them, the share spent waiting:
// 1 - mean / largest. 0 where nothing takes any time.
double idle_share(std::span<const double> times);

}  // namespace lockstep::runtime
