#include "runtime/train/cost_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <queue>
#include <tuple>
#include <vector>

#include "base/check.h"
#include "base/fitting/least_squares.h"
#include "base/numbers.h"

namespace lockstep::runtime {
namespace {

constexpr std::size_t kTerms = 3;         // step, image, text
constexpr int kRounds = 20;               // of reweighting; it converges long before
constexpr double kHuber = 1.345;          // 95 % efficient where the noise is normal (Huber)
constexpr double kNormalSpread = 1.4826;  // standard deviation / median absolute deviation
constexpr double kLittle = 1e-3;  // ridge on the step's cost: prefer to attribute time to items
constexpr double kTiny = 1e-9;    // ridge on the items' costs: makes the solution unique

std::array<double, kTerms> row_of_observation(const CostObservation& it) {
  return {1, it.images, it.texts};
}

std::vector<double> weighted_fit(std::span<const CostObservation> observations,
                                 const std::vector<double>& weights) {
  LeastSquares fit(kTerms);
  for (std::size_t n = 0; n < observations.size(); ++n)
    fit.add(row_of_observation(observations[n]), observations[n].ms, weights[n]);
  fit.add_ridge(0, kLittle, 0);
  for (std::size_t i = 1; i < kTerms; ++i) fit.add_ridge(i, kTiny, kTiny);
  return fit.solve();
}

// The weight of each observation: 1 near the fit, falling with the distance beyond `far`.
std::vector<double> huber_weights(std::span<const CostObservation> observations,
                                  const std::vector<double>& x) {
  std::vector<double> off;
  for (const CostObservation& it : observations) {
    const auto row = row_of_observation(it);
    off.push_back(std::abs(it.ms - row[0] * x[0] - row[1] * x[1] - row[2] * x[2]));
  }
  // median(off) estimates the spread of the noise without being moved by outliers.
  const double far = kHuber * kNormalSpread * median(off);
  for (double& value : off) value = value > far && far > 0 ? far / value : 1;
  return off;
}

}  // namespace

std::optional<ItemCosts> fit_costs(std::span<const CostObservation> observations) {
  if (observations.size() < kTerms) return std::nullopt;
  std::vector<double> weights(observations.size(), 1);
  std::vector<double> x;
  for (int round = 0; round < kRounds; ++round) {
    x = weighted_fit(observations, weights);
    weights = huber_weights(observations, x);
  }
  // A fit that says no item costs anything cannot guide a split.
  if (!std::isfinite(x[0] + x[1] + x[2]) || x[1] + x[2] <= 0) return std::nullopt;
  return ItemCosts{x[1], x[2], x[0]};
}

void CostModel::add(const CostObservation& observation) {
  window_.push_back(observation);
  if (window_.size() > kWindow) window_.pop_front();
}

void CostModel::fit() {
  const std::vector<CostObservation> observations(window_.begin(), window_.end());
  if (auto fitted = fit_costs(observations)) costs_ = fitted;
}

std::vector<std::vector<std::size_t>> longest_first(std::span<const double> costs, int ranks) {
  LOCKSTEP_CHECK(ranks > 0, "somebody computes");
  std::vector<std::size_t> order(costs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // Stable, so that items of equal cost keep their order and every rank computes the same split.
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return costs[a] > costs[b]; });

  // cost, items, rank: compared in this order, which breaks ties
  using Load = std::tuple<double, std::size_t, std::size_t>;
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

}  // namespace lockstep::runtime
