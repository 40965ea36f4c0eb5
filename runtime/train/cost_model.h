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

namespace lockstep {

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

}  // namespace lockstep
