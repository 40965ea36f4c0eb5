#include "sim/transformer/fit.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include <fmt/core.h>

#include "base/text.h"
#include "sim/transformer/evaluation.h"

namespace lockstep::sim {
namespace {

using Vector = std::vector<double>;

// The square root of a loss that is quadratic for small errors and linear for large ones
// (Charbonnier); least squares square it again.
double tamed(double error) {
  constexpr double kKnee = 0.05;
  const double scaled = error / kKnee;
  return std::copysign(kKnee * std::sqrt(2 * (std::sqrt(1 + scaled * scaled) - 1)), error);
}

// Solves a x = b for a small symmetric positive matrix, by elimination with pivots.
Vector solve(std::vector<Vector> a, Vector b) {
  const std::size_t n = b.size();
  for (std::size_t k = 0; k < n; ++k) {
    std::size_t pivot = k;
    for (std::size_t i = k + 1; i < n; ++i)
      if (std::abs(a[i][k]) > std::abs(a[pivot][k])) pivot = i;
    std::swap(a[k], a[pivot]);
    std::swap(b[k], b[pivot]);
    for (std::size_t i = k + 1; i < n; ++i) {
      const double factor = a[i][k] / a[k][k];
      for (std::size_t j = k; j < n; ++j) a[i][j] -= factor * a[k][j];
      b[i] -= factor * b[k];
    }
  }
  for (std::size_t k = n; k-- > 0;) {
    for (std::size_t j = k + 1; j < n; ++j) b[k] -= a[k][j] * b[j];
    b[k] /= a[k][k];
  }
  return b;
}

double squares(const Vector& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return sum;
}

class Fitter {
 public:
  Fitter(const std::vector<MeasuredStep>& rows, const CostParameters& start,
         std::vector<const CostParameter*> parameters, const FitOptions& options)
      : rows_(rows), start_(start), parameters_(std::move(parameters)), options_(options) {
    for (const CostParameter* parameter : parameters_)
      origin_.push_back(std::log(start.*(parameter->value)));
  }

  Result<Fit> run() {
    Vector x = origin_;
    Result<Vector> residuals = residuals_at(x);
    if (!residuals) return residuals.error();
    Fit fit;
    fit.before = mean_error(x);
    double damping = 1e-2;  // large: short steps along the gradient; small: Gauss-Newton
    for (bool moved = true; moved && fit.rounds < options_.most_rounds; ++fit.rounds) {
      Result<std::vector<Vector>> slopes = slopes_at(x, *residuals);
      if (!slopes) return slopes.error();
      moved = false;
      // Try with more damping until the loss falls. 8 times 4 covers 1 : 65536; if none helps, this
      // is the minimum.
      for (int attempt = 0; attempt < 8 && !moved; ++attempt, damping *= moved ? 0.2 : 4) {
        Vector next = step(x, *slopes, *residuals, damping);
        Result<Vector> there = residuals_at(next);
        if (!there) return there.error();
        // Smaller gains are rounding.
        if (squares(*there) >= squares(*residuals) * (1 - 1e-9)) continue;
        moved = true;
        x = std::move(next);
        residuals = std::move(there);
      }
    }
    fit.cost = cost_at(x);
    fit.after = mean_error(x);
    return fit;
  }

 private:
  // The vector x holds logarithms, so parameters stay positive; the table's limits are kept, too.
  CostParameters cost_at(const Vector& x) const {
    CostParameters cost = start_;
    for (std::size_t i = 0; i < x.size(); ++i)
      cost.*(parameters_[i]->value) =
          std::clamp(std::exp(x[i]), parameters_[i]->low, parameters_[i]->high);
    return cost;
  }

  Result<Vector> residuals_at(const Vector& x) const {
    const CostParameters cost = cost_at(x);
    Vector out;
    for (const MeasuredStep& row : rows_) {
      const Result<std::vector<Comparison>> figures = compare_row(row, 1, cost);
      if (!figures) return figures.error();
      for (const Comparison& figure : *figures)
        out.push_back(tamed(std::log(figure.predicted / figure.measured)));
    }
    for (std::size_t i = 0; i < x.size(); ++i)
      out.push_back(options_.stiffness * (x[i] - origin_[i]));
    return out;
  }

  Result<std::vector<Vector>> slopes_at(const Vector& x, const Vector& here) const {
    // 0.1 % of a parameter: far above rounding, far below the curvature.
    constexpr double kStep = 1e-3;
    std::vector<Vector> slopes;
    for (std::size_t i = 0; i < x.size(); ++i) {
      Vector beside = x;
      beside[i] += kStep;
      Result<Vector> there = residuals_at(beside);
      if (!there) return there.error();
      for (std::size_t k = 0; k < here.size(); ++k) (*there)[k] = ((*there)[k] - here[k]) / kStep;
      slopes.push_back(std::move(*there));
    }
    return slopes;
  }

  static Vector step(const Vector& x, const std::vector<Vector>& slopes, const Vector& residuals,
                     double damping) {
    const std::size_t n = x.size();
    std::vector<Vector> normal(n, Vector(n, 0));
    Vector towards(n, 0);
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j)
        for (std::size_t k = 0; k < residuals.size(); ++k)
          normal[i][j] += slopes[i][k] * slopes[j][k];
      for (std::size_t k = 0; k < residuals.size(); ++k) towards[i] -= slopes[i][k] * residuals[k];
    }
    for (std::size_t i = 0; i < n; ++i) normal[i][i] = normal[i][i] * (1 + damping) + 1e-9;
    Vector next = solve(std::move(normal), std::move(towards));
    // At most a factor of e^0.5 = 1.65 per step, in case the linear model is far off. 1e-9 above
    // keeps parameters without influence from making the matrix singular.
    for (std::size_t i = 0; i < n; ++i) next[i] = x[i] + std::clamp(next[i], -0.5, 0.5);
    return next;
  }

  double mean_error(const Vector& x) const {
    std::vector<Comparison> all;
    for (const MeasuredStep& row : rows_)
      if (const auto figures = compare_row(row, 1, cost_at(x)); figures)
        all.insert(all.end(), figures->begin(), figures->end());
    return summarize(all).mean;
  }

  const std::vector<MeasuredStep>& rows_;
  const CostParameters& start_;
  std::vector<const CostParameter*> parameters_;
  const FitOptions& options_;
  Vector origin_;
};

}  // namespace

Result<Fit> fit_parameters(const std::vector<MeasuredStep>& rows, const CostParameters& start,
                           const FitOptions& options) {
  if (rows.empty()) return Error{"there are no rows to fit to", {}, "name some with --rows"};
  if (options.parameters.empty())
    return Error{"there is no parameter to fit", {}, "name some with --parameters"};
  std::vector<std::string> names;
  for (const CostParameter& parameter : cost_parameters()) names.emplace_back(parameter.name);
  std::vector<const CostParameter*> chosen;
  for (const std::string& name : options.parameters) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
      const std::string meant = nearest(name, names);
      return Error{fmt::format("no parameter \"{}\" is known", printable(name)),
                   {},
                   meant.empty() ? "docs/simulate-workloads.md lists them"
                                 : fmt::format("did you mean {}?", meant)};
    }
    chosen.push_back(&cost_parameters()[static_cast<std::size_t>(found - names.begin())]);
  }
  return Fitter(rows, start, std::move(chosen), options).run();
}

}  // namespace lockstep::sim
