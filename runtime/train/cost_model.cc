#include "runtime/train/cost_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/numbers.h"

namespace lockstep::runtime {
namespace {

constexpr std::size_t kTerms = 3;         // step, image, text
constexpr int kRounds = 20;               // of reweighting; it converges long before
constexpr double kHuber = 1.345;          // 95 % efficient where the noise is normal (Huber)
constexpr double kNormalSpread = 1.4826;  // standard deviation / median absolute deviation
constexpr double kLittle = 1e-3;  // ridge on the step's cost: prefer to attribute time to items
constexpr double kTiny = 1e-9;    // ridge on the items' costs: makes the solution unique

using Vector = std::array<double, kTerms>;

// The normal equations: a x = b.
struct Normal {
  std::array<Vector, kTerms> a{};
  Vector b{};

  double badness(const Vector& x) const {  // the sum of squares, up to a constant
    double sum = 0;
    for (std::size_t i = 0; i < kTerms; ++i) {
      sum -= 2 * b[i] * x[i];
      for (std::size_t j = 0; j < kTerms; ++j) sum += x[i] * a[i][j] * x[j];
    }
    return sum;
  }
};

Vector row_of_observation(const CostObservation& it) { return {1, it.images, it.texts}; }

Normal normal_equations(std::span<const CostObservation> observations,
                        const std::vector<double>& weights) {
  Normal normal;
  for (std::size_t n = 0; n < observations.size(); ++n) {
    const Vector row = row_of_observation(observations[n]);
    for (std::size_t i = 0; i < kTerms; ++i) {
      normal.b[i] += weights[n] * row[i] * observations[n].ms;
      for (std::size_t j = 0; j < kTerms; ++j) normal.a[i][j] += weights[n] * row[i] * row[j];
    }
  }
  normal.a[0][0] *= 1 + kLittle;
  for (std::size_t i = 1; i < kTerms; ++i) normal.a[i][i] = normal.a[i][i] * (1 + kTiny) + kTiny;
  return normal;
}

// Solves for the terms in `used`, a bit set; the others are 0. Gaussian elimination without
// pivoting, which is safe for a positive definite matrix.
Vector solve(Normal normal, unsigned used) {
  for (std::size_t i = 0; i < kTerms; ++i) {
    if ((used >> i & 1U) != 0) continue;
    for (std::size_t j = 0; j < kTerms; ++j) normal.a[i][j] = normal.a[j][i] = 0;
    normal.a[i][i] = 1;
    normal.b[i] = 0;
  }
  for (std::size_t i = 0; i < kTerms; ++i) {
    for (std::size_t j = i + 1; j < kTerms; ++j) {
      const double factor = normal.a[j][i] / normal.a[i][i];
      for (std::size_t k = i; k < kTerms; ++k) normal.a[j][k] -= factor * normal.a[i][k];
      normal.b[j] -= factor * normal.b[i];
    }
  }
  Vector x{};
  for (std::size_t i = kTerms; i-- > 0;) {
    double rest = normal.b[i];
    for (std::size_t k = i + 1; k < kTerms; ++k) rest -= normal.a[i][k] * x[k];
    x[i] = rest / normal.a[i][i];
  }
  return x;
}

// Non-negative least squares. The problem is convex, so the optimum is the unconstrained solution
// on some subset of the terms. With three terms all subsets can be tried.
Vector solve_non_negative(const Normal& normal) {
  Vector best{};
  double least = 0;
  for (unsigned used = 1; used < 1U << kTerms; ++used) {
    const Vector x = solve(normal, used);
    const bool fits = std::all_of(x.begin(), x.end(), [](double v) { return v >= 0; });
    if (fits && normal.badness(x) < least) {
      least = normal.badness(x);
      best = x;
    }
  }
  return best;
}

// The weight of each observation: 1 near the fit, falling with the distance beyond `far`.
std::vector<double> huber_weights(std::span<const CostObservation> observations, const Vector& x) {
  std::vector<double> off;
  for (const CostObservation& it : observations) {
    const Vector row = row_of_observation(it);
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
  Vector x{};
  for (int round = 0; round < kRounds; ++round) {
    x = solve_non_negative(normal_equations(observations, weights));
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
