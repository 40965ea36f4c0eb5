// Goodput against single failures, drawn one by one, and against Young's and Daly's formulas.
#include "sim/forecast/goodput.h"

#include <cmath>
#include <random>

#include <gtest/gtest.h>

namespace lockstep::sim {
namespace {

// The share of the time that is work in a job that is simulated failure by failure.
double simulated_goodput(const FailureModel& model, double interval, int intervals) {
  std::mt19937_64 random(7);
  std::exponential_distribution<double> failure(1 / model.mtbf);
  double wall = 0;
  for (int i = 0; i < intervals; ++i) {
    // Until an interval and its checkpoint pass without a failure.
    for (double next = failure(random); next < interval + model.checkpoint;
         next = failure(random)) {
      wall += next;
      // Restarting may fail, too, and then starts again.
      for (double again = failure(random); again < model.restart; again = failure(random))
        wall += again;
      wall += model.restart;
    }
    wall += interval + model.checkpoint;
  }
  return interval * intervals / wall;
}

TEST(Goodput, IsWhatFailuresSimulatedOneByOneLeave) {
  for (const FailureModel& model :
       {FailureModel{10'000, 30, 300}, FailureModel{3'600, 60, 600}, FailureModel{900, 10, 120}})
    for (const double interval : {200.0, 800.0, 2400.0}) {
      // The model restarts before every interval that failed; so does the play. 20,000 intervals
      // leave a standard error below half a percent.
      const double expected = goodput(model, interval);
      EXPECT_NEAR(simulated_goodput(model, interval, 20'000) / expected, 1, 0.05)
          << model.mtbf << " " << interval;
    }
}

TEST(Goodput, BestIntervalIsYoungsAndDalysWhereCheckpointsAreCheap) {
  for (const double mtbf : {3'600.0, 86'400.0, 1e7})
    for (const double checkpoint : {0.5, 10.0, 60.0}) {
      const FailureModel model{mtbf, checkpoint, 600};
      const double best = best_interval(model);
      EXPECT_NEAR(daly_interval(model) / best, 1, 0.01);
      // Young leaves out a term of the order of the checkpoint.
      EXPECT_NEAR(young_interval(model), best, 1.5 * checkpoint + 0.02 * best);
      EXPECT_GE(goodput(model, best), goodput(model, 1.02 * best));
      EXPECT_GE(goodput(model, best), goodput(model, best / 1.02));
    }
}

TEST(Goodput, WithoutCheckpointCostsIsBestAtOnce) {
  const FailureModel model{3'600, 0, 60};
  EXPECT_LT(best_interval(model), 1);
  EXPECT_NEAR(goodput(model, best_interval(model)), std::exp(-60.0 / 3'600), 1e-3);
}

TEST(Goodput, IsNoneWhereFailuresComeFasterThanAnIntervalEnds) {
  EXPECT_EQ(goodput({1, 1, 1}, 1e6), 0);
  EXPECT_EQ(daly_interval({1, 10, 1}), 1);
}

// Llama 3 on 16,384 H100: 419 unexpected interruptions in 54 days, and more than 90 % of the time
// was training (arXiv 2407.21783, section 3.3.4). Most restarts were automatic; what they and a
// checkpoint took is not published: five minutes and ten seconds.
TEST(Goodput, OfLlama3IsWhatItsPaperSays) {
  const double mtbf = 54.0 * 86'400 / 419;
  const FailureModel model{mtbf, 10, 300};
  EXPECT_GT(goodput(model, best_interval(model)), 0.90);
  EXPECT_LT(goodput(model, best_interval(model)), 0.97);
}

}  // namespace
}  // namespace lockstep::sim
