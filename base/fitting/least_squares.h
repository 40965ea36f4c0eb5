// Non-negative least squares for a few unknowns: the x without a negative element for which
// Σ weight · (row · x - y)² over all rows is least.
//
// The sum is convex. So where it is least, the elements of x above 0 solve the normal equations of
// the problem without the others. All choices of these elements are tried: 2^n, n the unknowns.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace lockstep {

class LeastSquares {
 public:
  explicit LeastSquares(std::size_t unknowns);

  // `row`: a value for each unknown. O(n²).
  void add(std::span<const double> row, double y, double weight);

  // Adds `extra` to the weight of x[i]², so that of equally good answers the one with the smaller
  // x[i] is taken. `share` of the sum of the squares that were added for it does the same.
  void add_ridge(std::size_t i, double share, double extra);

  // All 0 where no other answer is better. Deterministic: the same rows in the same order give the
  // same bits. O(2^n · n³).
  std::vector<double> solve() const;

 private:
  // The normal equations, matrix · x = right; the symmetric matrix element by element. Eigen stays
  // out of this header, which many files would wait for.
  std::vector<double> matrix_, right_;
};

}  // namespace lockstep
