#include "base/fitting/least_squares.h"

#include <optional>
#include <utility>

#include <Eigen/LU>

namespace lockstep {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

// The best values of these unknowns, with all others 0. Nothing if the rows do not determine them.
std::optional<VectorXd> solve_for(const std::vector<Index>& unknowns, const MatrixXd& matrix,
                                  const VectorXd& right) {
  const MatrixXd part = matrix(unknowns, unknowns);
  // Unknowns may differ by ten orders of magnitude (seconds per FLOP, seconds per operation): each
  // is scaled by its diagonal.
  const VectorXd scale = part.diagonal().cwiseSqrt();
  if ((scale.array() == 0).any()) return std::nullopt;
  const VectorXd inverse = scale.cwiseInverse();
  Eigen::FullPivLU<MatrixXd> scaled(inverse.asDiagonal() * part * inverse.asDiagonal());
  // After scaling, diagonals are 1: a pivot this small means a linear dependence.
  scaled.setThreshold(1e-12);
  if (!scaled.isInvertible()) return std::nullopt;
  const VectorXd chosen = right(unknowns);
  VectorXd out = VectorXd::Zero(right.size());
  out(unknowns) = inverse.cwiseProduct(scaled.solve(inverse.cwiseProduct(chosen)));
  return out;
}

}  // namespace

LeastSquares::LeastSquares(std::size_t unknowns) : matrix_(unknowns * unknowns), right_(unknowns) {}

void LeastSquares::add(std::span<const double> row, double y, double weight) {
  const auto n = static_cast<Index>(right_.size());
  const Eigen::Map<const VectorXd> values(row.data(), n);
  Eigen::Map<MatrixXd>(matrix_.data(), n, n) += weight * values * values.transpose();
  Eigen::Map<VectorXd>(right_.data(), n) += weight * y * values;
}

void LeastSquares::add_ridge(std::size_t i, double share, double extra) {
  double& square = matrix_[i * right_.size() + i];
  square = square * (1 + share) + extra;
}

std::vector<double> LeastSquares::solve() const {
  const auto n = static_cast<Index>(right_.size());
  const MatrixXd matrix = Eigen::Map<const MatrixXd>(matrix_.data(), n, n);
  const VectorXd right = Eigen::Map<const VectorXd>(right_.data(), n);
  VectorXd best = VectorXd::Zero(n);
  double least = 0;  // the sum of squares, less that for x = 0
  // The bits of `chosen` are the unknowns that may be above 0.
  for (std::size_t chosen = 1; chosen < std::size_t{1} << right_.size(); ++chosen) {
    std::vector<Index> unknowns;
    for (std::size_t i = 0; i < right_.size(); ++i)
      if ((chosen >> i & 1U) != 0) unknowns.push_back(static_cast<Index>(i));
    std::optional<VectorXd> x = solve_for(unknowns, matrix, right);
    if (!x || (x->array() < 0).any()) continue;
    if (const double error = x->dot(matrix * *x) - 2 * right.dot(*x); error < least) {
      least = error;
      best = *std::move(x);
    }
  }
  return {best.begin(), best.end()};
}

}  // namespace lockstep
