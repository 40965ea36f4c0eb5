#include "base/least_squares.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace lockstep {

LeastSquares::LeastSquares(std::size_t unknowns) : matrix_(unknowns * unknowns), right_(unknowns) {}

void LeastSquares::add(std::span<const double> row, double y, double weight) {
  for (std::size_t i = 0; i < right_.size(); ++i) {
    for (std::size_t j = 0; j < right_.size(); ++j) at(i, j) += weight * row[i] * row[j];
    right_[i] += weight * row[i] * y;
  }
}

void LeastSquares::add_ridge(std::size_t i, double share, double extra) {
  at(i, i) = at(i, i) * (1 + share) + extra;
}

// The sum of squares, less that for x = 0.
double LeastSquares::error(std::span<const double> x) const {
  double out = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    out -= 2 * right_[i] * x[i];
    for (std::size_t j = 0; j < x.size(); ++j) out += x[i] * at(i, j) * x[j];
  }
  return out;
}

// By Gauss elimination, the other elements being 0. Nothing if the rows do not determine them.
std::optional<std::vector<double>> LeastSquares::solve_for(
    std::span<const std::size_t> unknowns) const {
  const std::size_t n = unknowns.size();
  // Unknowns may differ by ten orders of magnitude (seconds per FLOP, seconds per operation): each
  // is scaled by its diagonal.
  std::vector<double> scale(n);
  for (std::size_t i = 0; i < n; ++i) scale[i] = std::sqrt(at(unknowns[i], unknowns[i]));
  std::vector<std::vector<double>> m(n, std::vector<double>(n + 1));
  for (std::size_t i = 0; i < n; ++i) {
    if (scale[i] == 0) return std::nullopt;
    for (std::size_t j = 0; j < n; ++j)
      m[i][j] = at(unknowns[i], unknowns[j]) / (scale[i] * scale[j]);
    m[i][n] = right_[unknowns[i]] / scale[i];
  }
  for (std::size_t c = 0; c < n; ++c) {
    const auto pivot = std::max_element(
        m.begin() + static_cast<std::ptrdiff_t>(c), m.end(),
        [c](const auto& a, const auto& b) { return std::abs(a[c]) < std::abs(b[c]); });
    // After scaling, diagonals are 1: a pivot this small means a linear dependence.
    if (std::abs((*pivot)[c]) < 1e-12) return std::nullopt;
    std::swap(m[c], *pivot);
    for (std::size_t r = 0; r < n; ++r) {
      if (r == c) continue;
      const double factor = m[r][c] / m[c][c];
      for (std::size_t k = c; k <= n; ++k) m[r][k] -= factor * m[c][k];
    }
  }
  std::vector<double> out(right_.size());
  for (std::size_t i = 0; i < n; ++i) out[unknowns[i]] = m[i][n] / m[i][i] / scale[i];
  return out;
}

std::vector<double> LeastSquares::solve() const {
  std::vector<double> best(right_.size());
  double least = 0;
  for (std::size_t chosen = 1; chosen < std::size_t{1} << right_.size(); ++chosen) {
    std::vector<std::size_t> unknowns;
    for (std::size_t i = 0; i < right_.size(); ++i)
      if ((chosen >> i & 1U) != 0) unknowns.push_back(i);
    auto x = solve_for(unknowns);
    if (!x || std::any_of(x->begin(), x->end(), [](double v) { return v < 0; })) continue;
    if (const double error = this->error(*x); error < least) {
      least = error;
      best = *std::move(x);
    }
  }
  return best;
}

}  // namespace lockstep
