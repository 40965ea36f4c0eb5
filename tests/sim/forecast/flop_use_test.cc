#include <gtest/gtest.h>

#include "sim/forecast/forecast.h"
#include "tests/sim/machine/kernel_job.h"

namespace lockstep::sim {
namespace {

trace::WorkCost products(std::int64_t step, const std::string& dtype, double matmul,
                         double convolution) {
  trace::WorkCost out = kernels(trace::WorkCost::Before::step, step, step, 1);
  out.flops.push_back({dtype, matmul, convolution});
  return out;
}

TEST(FlopUse, EachTypeCountsAgainstItsOwnPeak) {
  Machine machine = millisecond_kernels();  // float32: 1 TFLOP/s
  machine.compute["bfloat16"] = {FlopRate{4'000'000'000'000}, .5, .5};
  trace::RankCosts one, other;
  one.work = {products(-1, "float32", 7e12, 0), products(0, "float32", 9e12, 0),
              products(1, "float32", 1e11, 2e11), products(2, "bfloat16", 4e11, 0)};
  other.work = {products(-1, "float32", 0, 0), products(0, "float32", 0, 0),
                products(1, "float32", 0, 0), products(2, "float32", 0, 0)};
  // Three ranks, of which two do nothing, over the two steps after the first.
  const FlopUse use = flop_use({&one, &other, &other}, machine, 1, 2);
  EXPECT_DOUBLE_EQ(use.flops, (3e11 + 4e11) / 2);
  EXPECT_DOUBLE_EQ(use.peak_seconds, (0.3 + 0.1) / 2 / 3);
  EXPECT_DOUBLE_EQ(use.share(1), 0.2 / 3);
  EXPECT_DOUBLE_EQ(use.share(0), 0);
}

TEST(FlopUse, StepsCountFromTheFirstOneThatARankMade) {
  trace::RankCosts resumed;
  resumed.work = {products(40, "float32", 1e12, 0), products(41, "float32", 2e12, 0)};
  EXPECT_DOUBLE_EQ(flop_use({&resumed}, millisecond_kernels(), 1, 1).flops, 2e12);
  EXPECT_DOUBLE_EQ(flop_use({&resumed}, millisecond_kernels(), 0, 1).flops, 1e12);
}

TEST(FlopUse, WhatComesBetweenStepsDoesNotCount) {
  trace::RankCosts costs;
  costs.work = {products(0, "float32", 1e12, 0), products(1, "float32", 2e12, 0),
                products(1, "float32", 4e12, 0), products(1, "float32", 8e12, 0)};
  costs.work[2].before = trace::WorkCost::Before::checkpoint;
  costs.work[3].before = trace::WorkCost::Before::evaluation;
  EXPECT_DOUBLE_EQ(flop_use({&costs}, millisecond_kernels(), 1, 1).flops, 2e12);
}

TEST(FlopUse, OfNothingIsNothing) {
  const trace::RankCosts none;
  EXPECT_DOUBLE_EQ(flop_use({&none}, millisecond_kernels(), 0, 1).flops, 0);
  EXPECT_DOUBLE_EQ(flop_use({}, millisecond_kernels(), 0, 1).peak_seconds, 0);
  EXPECT_DOUBLE_EQ(flop_use({&none}, millisecond_kernels(), 0, 0).peak_seconds, 0);
}

}  // namespace
}  // namespace lockstep::sim
