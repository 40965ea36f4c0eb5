#include "sim/forecast/trials.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/machine/kernel_job.h"

namespace lockstep::sim {
namespace {

using testing::HasSubstr;

Trials run(const KernelJob& job, const TrialOptions& options) {
  const Result<Trials> trials = run_trials(job.run, job.program, job.machine, options);
  EXPECT_TRUE(trials) << trials.error().str();
  return *trials;
}

double mean_ms(const Trials& trials) {
  double sum = 0, count = 0;
  for (const auto& trial : trials.steps) {
    for (const Picos step : trial) {
      sum += static_cast<double>(step.value) * 1e-9;
      ++count;
    }
  }
  return sum / count;
}

TrialOptions forecast_with(Jitter jitter, std::size_t trials = 50) {
  TrialOptions out;
  out.trials = trials;
  out.jitter = jitter;
  return out;
}

const std::vector<KernelStep> kSteps(5, {10, 0, "text"});

TEST(Trials, WithoutVariationEachStepIsThatOfTheForecast) {
  const KernelJob job({kSteps, kSteps});
  const Trials trials = run(job, forecast_with({}, 2));
  ASSERT_EQ(trials.steps.size(), 2U);
  for (const auto& trial : trials.steps) {
    ASSERT_EQ(trial.size(), 4U);
    for (const Picos step : trial) EXPECT_EQ(step, job.forecast().step_time);
  }
}

// Rank 1 alone saves, which the steps do not show, and whose work no other step is given.
TEST(Trials, CheckpointsAreNoPartOfTheSteps) {
  std::vector<KernelStep> saves = kSteps;
  saves[1].saving = 30;
  saves[3].saving = 0;
  for (const bool redraw : {false, true}) {
    TrialOptions options = forecast_with({}, 20);
    options.redraw_batches = redraw;
    for (const auto& trial : run(KernelJob({kSteps, saves}), options).steps)
      EXPECT_EQ(trial, std::vector<Picos>(4, ms(12)));
  }
}

TEST(Trials, ASeedGivesTheSameWhateverTheThreads) {
  const KernelJob job({kSteps, kSteps, kSteps});
  TrialOptions options = forecast_with({.work = .2, .calls = .1});
  const Trials one = run(job, options);
  options.threads = 4;
  EXPECT_EQ(run(job, options).steps, one.steps);
  options.seed = 2;
  EXPECT_NE(run(job, options).steps, one.steps);
  options.trials = 10;
  options.seed = 1;
  const Trials fewer = run(job, options);
  EXPECT_TRUE(std::equal(fewer.steps.begin(), fewer.steps.end(), one.steps.begin()));
}

// One rank alone: a step is 10 ms times a factor with the mean 1 and the coefficient of variation
// that was asked for. 20,000 steps: the bounds are six standard errors.
TEST(Trials, FactorsHaveTheMeanAndTheVariationAskedFor) {
  const KernelJob job({std::vector<KernelStep>(21, {10, 0, ""})});
  const Trials trials = run(job, forecast_with({.work = .3}, 1000));
  double sum = 0, squares = 0;
  for (const auto& trial : trials.steps) {
    for (const Picos step : trial) {
      const double factor = step.seconds() / 10e-3;
      sum += factor;
      squares += factor * factor;
    }
  }
  const double mean = sum / 20'000;
  EXPECT_NEAR(mean, 1, 6 * .3 / std::sqrt(20'000));
  EXPECT_NEAR(std::sqrt(squares / 20'000 - mean * mean), .3, .02);
}

TEST(Trials, OnlyBatchesWithImagesVaryWithThem) {
  std::vector<KernelStep> steps(4, {10, 0, "text"});
  steps[2].modalities = "image,text";
  const Trials trials = run(KernelJob({steps}), forecast_with({.images = .5}, 20));
  std::set<std::int64_t> with_images;
  for (const auto& trial : trials.steps) {
    EXPECT_EQ(trial[0], ms(10));
    with_images.insert(trial[1].value);
    EXPECT_EQ(trial[2], ms(10));
  }
  EXPECT_EQ(with_images.size(), 20U);
}

TEST(Trials, CallsVaryByThemselves) {
  const Trials trials = run(KernelJob({kSteps, kSteps}), forecast_with({.calls = .5}, 200));
  for (const auto& trial : trials.steps)
    for (const Picos step : trial) EXPECT_GT(step, ms(10));
  EXPECT_NEAR(mean_ms(trials), 12, 6 * .5 * 2 / std::sqrt(800));
}

// Who waits for the slowest of more waits longer.
TEST(Trials, MoreRanksWaitLonger) {
  const double two = mean_ms(run(KernelJob({kSteps, kSteps}), forecast_with({.work = .2}, 200)));
  Machine machine = millisecond_kernels();
  const std::vector<std::vector<KernelStep>> many(16, kSteps);
  // A call of 2 (n - 1) hops.
  const double sixteen =
      mean_ms(run(KernelJob(many, machine), forecast_with({.work = .2}, 200))) - 28;
  EXPECT_GT(two, 12);
  EXPECT_GT(sixteen + 2, two + 1);
}

// N ranks, each of which has images with the probability q: a step takes as long as the slowest
// batch, a or b, and the call: E = b - (b - a)(1 - q)^N + x.
TEST(Trials, DrawnBatchesGiveTheClosedForm) {
  constexpr double kText = 4, kImage = 10, kCall = 6, kShare = .25;  // ms; the call: 6 hops
  std::vector<std::vector<KernelStep>> ranks(4, std::vector<KernelStep>(9, {4, 0, "text"}));
  for (std::size_t s = 1; s < 9; ++s) ranks[s % 4][s] = {10, 0, "image,text"};  // 8 of 32
  TrialOptions options = forecast_with({}, 500);
  options.redraw_batches = true;
  const Trials trials = run(KernelJob(ranks), options);
  for (const auto& trial : trials.steps)
    for (const Picos step : trial)
      EXPECT_TRUE(step == ms(kText + kCall) || step == ms(kImage + kCall)) << step.value;
  const double none = std::pow(1 - kShare, 4);
  const double deviation = (kImage - kText) * std::sqrt(none * (1 - none) / (500 * 8));
  EXPECT_NEAR(mean_ms(trials), kImage - (kImage - kText) * none + kCall, 5 * deviation);
  // As they were derived one rank has images in each step.
  EXPECT_DOUBLE_EQ(mean_ms(run(KernelJob(ranks), forecast_with({}, 1))), kImage + kCall);
}

TEST(Trials, BatchesThatDecideTheCallsAreNotDrawn) {
  const std::string text =
      "all_reduce n=0 dtype=float32; step 0; all_reduce n=0 dtype=float32; step 1;"
      "all_reduce n=8 dtype=float32; step 2; clean";
  trace::RankCosts costs;
  for (std::int64_t s = 0; s < 3; ++s) {
    costs.work.push_back(kernels(trace::WorkCost::Before::call, s, s, 1));
    costs.work.push_back(kernels(trace::WorkCost::Before::step, s, s, 0));
  }
  const Machine machine = millisecond_kernels();
  const Result<trace::Run> timed =
      timed_run(verify::program({text}, false), {&costs}, {0}, machine);
  ASSERT_TRUE(timed);
  TrialOptions options = forecast_with({});
  options.redraw_batches = true;
  const Result<Trials> trials = run_trials(*timed, *program_of(*timed), machine, options);
  ASSERT_FALSE(trials);
  EXPECT_THAT(trials.error().str(), HasSubstr("rank 0 makes different calls"));
}

TEST(Trials, AreBounded) {
  const KernelJob job({kSteps});
  EXPECT_FALSE(run_trials(job.run, job.program, job.machine, forecast_with({}, kMaxTrialSteps)));
}

TEST(Trials, QuantilesLieBetweenTheNearestValues) {
  const std::vector<Picos> values = {Picos{40}, Picos{10}, Picos{20}, Picos{30}};
  EXPECT_EQ(quantile(values, 0).value, 10);
  EXPECT_EQ(quantile(values, .5).value, 25);
  EXPECT_EQ(quantile(values, .9).value, 37);
  EXPECT_EQ(quantile(values, 1).value, 40);
  EXPECT_EQ(quantile({Picos{7}}, .95).value, 7);
}

TEST(Histogram, CountsEveryDurationOnce) {
  std::vector<Picos> durations;
  for (int i = 0; i < 27; ++i) durations.push_back(ms(10 + i));
  const Histogram all = histogram(durations);
  EXPECT_EQ(all.begin, ms(10));
  EXPECT_EQ(all.end, ms(36));
  // Six parts of 26/6 ms: the first from 10 to 14.3 ms.
  EXPECT_THAT(all.counts, testing::ElementsAre(5, 4, 4, 5, 4, 5));
}

TEST(Histogram, EqualDurationsAreOnePart) {
  const Histogram one = histogram({ms(3), ms(3)});
  EXPECT_THAT(one.counts, testing::ElementsAre(2));
  EXPECT_EQ(one.begin, one.end);
}

TEST(Histogram, HasABoundedNumberOfParts) {
  std::vector<Picos> durations;
  for (int i = 0; i < 100'000; ++i) durations.push_back(Picos{i});
  EXPECT_EQ(histogram(durations).counts.size(), Histogram::kMaxParts);
}

}  // namespace
}  // namespace lockstep::sim
