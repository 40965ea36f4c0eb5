#include "base/fitting/least_squares.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;

TEST(LeastSquares, FindsWhatTheRowsWereMadeOf) {
  LeastSquares fit(2);
  for (const double bytes : {1e3, 1e6, 1e9})
    fit.add(std::array{1.0, bytes}, 5e-6 + bytes * 2e-11, 1);
  EXPECT_THAT(fit.solve(), ElementsAre(DoubleNear(5e-6, 1e-12), DoubleNear(2e-11, 1e-17)));
}

TEST(LeastSquares, WeighsRows) {
  LeastSquares fit(1);
  fit.add(std::array{1.0}, 1, 3);
  fit.add(std::array{1.0}, 5, 1);
  EXPECT_THAT(fit.solve(), ElementsAre(DoubleNear(2, 1e-12)));
}

// y = 3 - x: without the bound the second element would be below 0.
TEST(LeastSquares, LeavesOutWhatWouldBeNegative) {
  LeastSquares fit(2);
  for (const double x : {0.0, 1.0, 2.0}) fit.add(std::array{1.0, x}, 3 - x, 1);
  EXPECT_THAT(fit.solve(), ElementsAre(DoubleNear(2, 1e-12), 0));
}

TEST(LeastSquares, IsAllZeroWhereNothingElseIsBetter) {
  LeastSquares fit(2);
  EXPECT_THAT(fit.solve(), ElementsAre(0, 0));
  fit.add(std::array{1.0, 2.0}, -1, 1);
  EXPECT_THAT(fit.solve(), ElementsAre(0, 0));
}

// Where two unknowns occur together only, a ridge decides; without it, one is taken alone.
TEST(LeastSquares, DependentUnknownsNeedARidge) {
  LeastSquares fit(2);
  fit.add(std::array{1.0, 4.0}, 8, 1);
  fit.add(std::array{2.0, 8.0}, 16, 1);
  std::vector<double> x = fit.solve();
  EXPECT_NEAR(x[0] + 4 * x[1], 8, 1e-9);
  EXPECT_EQ(std::min(x[0], x[1]), 0);
  fit.add_ridge(0, 1e-3, 0);
  x = fit.solve();
  EXPECT_NEAR(x[1], 2, 1e-2);
}

// No point of a fine grid is better than the answer.
TEST(LeastSquares, NoPointOfAGridIsBetter) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> value(-1, 1);
  for (int trial = 0; trial < 50; ++trial) {
    LeastSquares fit(2);
    std::vector<std::array<double, 3>> rows(4);
    for (auto& row : rows) {
      for (double& v : row) v = value(random);
      fit.add(std::array{row[0], row[1]}, row[2], 1);
    }
    const auto error = [&](double a, double b) {
      double sum = 0;
      for (const auto& row : rows) sum += std::pow(row[0] * a + row[1] * b - row[2], 2);
      return sum;
    };
    const std::vector<double> x = fit.solve();
    for (double a = 0; a < 4; a += 0.05)
      for (double b = 0; b < 4; b += 0.05)
        EXPECT_GE(error(a, b), error(x[0], x[1]) - 1e-9) << trial;
  }
}

}  // namespace
}  // namespace lockstep
