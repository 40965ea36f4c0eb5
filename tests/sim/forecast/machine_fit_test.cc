#include "sim/forecast/machine_fit.h"

#include <cmath>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "sim/forecast/training_steps.h"
#include "tests/sim/machine/kernel_job.h"

namespace lockstep::sim {
namespace {

const WorkRates kRates{{{"float32", 2e-11}, {"float16", 9e-10}}, 3e-10, 4e-6, 0};

// Steps that take exactly what the rates say.
std::vector<trace::WorkCost> made_with(const WorkRates& rates) {
  std::vector<trace::WorkCost> out;
  for (int i = 1; i <= 40; ++i) {
    trace::WorkCost work;
    const double matmul = 1e9 * ((i * 7) % 11);
    const double convolution = 1e9 * ((i * 5) % 13);
    const double half = 1e9 * ((i * 13) % 7);
    work.flops = {{"float32", matmul, convolution}, {"float16", half, 0}};
    work.memory_bytes = 1e8 * ((i * 3) % 17);
    work.operations = 1000 * ((i * 11) % 19) + 1000;
    work.nanos =
        std::llround(1e9 * ((matmul + convolution) * rates.flop.at("float32") +
                            half * rates.flop.at("float16") + work.memory_bytes * rates.byte +
                            static_cast<double>(work.operations) * rates.dispatch));
    out.push_back(work);
  }
  return out;
}

TEST(FitWork, FindsTheRatesThatMadeTheTimes) {
  const WorkRates rates = kRates;
  const auto fitted = fit_work(made_with(rates));
  ASSERT_TRUE(fitted);
  for (const auto& [type, rate] : rates.flop)
    EXPECT_NEAR(fitted->flop.at(type) / rate, 1, 1e-4) << type;
  EXPECT_NEAR(fitted->byte / rates.byte, 1, 1e-4);
  EXPECT_NEAR(fitted->dispatch / rates.dispatch, 1, 1e-4);
  EXPECT_LT(fitted->median_error, 1e-4);
}

TEST(FitWork, WhatCostsNothingIsNotMadeNegative) {
  std::vector<trace::WorkCost> work = made_with({kRates.flop, 0, 4e-6, 0});
  // As if bytes made it faster: times that no rate above zero gives.
  for (trace::WorkCost& w : work) w.nanos -= static_cast<std::int64_t>(w.memory_bytes * 1e-3);
  const auto fitted = fit_work(work);
  ASSERT_TRUE(fitted);
  EXPECT_EQ(fitted->byte, 0);
  EXPECT_GT(fitted->flop.at("float32"), 0);
  EXPECT_GE(fitted->dispatch, 0);
}

TEST(FitWork, TooLittleIsRefused) {
  std::vector<trace::WorkCost> work = made_with(kRates);
  work.resize(kMinMeasured - 1);
  EXPECT_FALSE(fit_work(work));
  EXPECT_FALSE(fit_work(std::vector<trace::WorkCost>(100)));  // nothing was timed
}

TEST(FitWork, ProductsOfTooManyTypesAreRefused) {
  std::vector<trace::WorkCost> work = made_with(kRates);
  for (const char* type : {"float64", "bfloat16", "float8"}) work[0].flops.push_back({type, 1, 0});
  EXPECT_FALSE(fit_work(work));
}

TEST(ByStep, SegmentsOfAStepAddUp) {
  std::vector<trace::WorkCost> work(3);
  work[0].step = work[1].step = 2;
  work[2].step = 5;
  work[0].nanos = 7;
  work[1].nanos = 8;
  work[1].operations = 3;
  work[1].flops = {{"float32", 4, 5}};
  const std::vector<trace::WorkCost> steps = by_step(work);
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[0].step, 2);
  EXPECT_EQ(steps[0].nanos, 15);
  EXPECT_EQ(steps[0].operations, 3);
  EXPECT_EQ(steps[0].flops.front().convolution, 5);
  EXPECT_EQ(steps[1].nanos, 0);
}

std::vector<MeasuredCall> ring_calls(double alpha, double bytes_per_second, double n) {
  std::vector<MeasuredCall> out;
  for (const double bytes : {64.0, 4096.0, 262144.0, 1048576.0})
    out.push_back({bytes, 2 * (n - 1) * alpha + 2 * (n - 1) / n * bytes / bytes_per_second});
  return out;
}

TEST(FitAllReduce, FindsTheLinkThatMadeTheTimes) {
  const auto link = fit_all_reduce(ring_calls(20e-6, 1e9, 4), 4);
  ASSERT_TRUE(link);
  EXPECT_NEAR(link->alpha.seconds(), 20e-6, 1e-9);
  EXPECT_NEAR(link->beta.bytes_per_second(), 1e9, 1e4);
}

TEST(FitAllReduce, OneSlowCallOfASizeDoesNotCount) {
  std::vector<MeasuredCall> calls;
  for (int i = 0; i < 5; ++i)
    for (const MeasuredCall& call : ring_calls(20e-6, 1e9, 4)) calls.push_back(call);
  calls[0].seconds = 10;
  const auto link = fit_all_reduce(calls, 4);
  ASSERT_TRUE(link);
  EXPECT_NEAR(link->beta.bytes_per_second(), 1e9, 1e4);
}

TEST(FitAllReduce, CallsOfGroupsThatRestedAreTheStarts) {
  std::vector<MeasuredCall> calls = ring_calls(20e-6, 1e9, 4);
  const auto fresh = fit_all_reduce(calls, 4);
  ASSERT_TRUE(fresh);
  EXPECT_EQ(fit_start(calls, 4, *fresh), 0) << "none rested";
  for (MeasuredCall call : ring_calls(20e-6, 1e9, 4)) {
    call.seconds += 150e-6;
    call.rested = true;
    calls.push_back(call);
  }
  const auto link = fit_all_reduce(calls, 4);
  ASSERT_TRUE(link);
  EXPECT_EQ(link->alpha, fresh->alpha);
  EXPECT_NEAR(fit_start(calls, 4, *link), 150e-6, 1e-8);
  calls.back().seconds = 10;
  EXPECT_NEAR(fit_start(calls, 4, *link), 150e-6, 1e-8) << "the median";
}

// A hop of 10 us: 4 us until its thread is awake, and 2 us for each of its turns.
TEST(ShareLink, DistinguishesWakesFromWork) {
  const Bandwidth beta{8'000'000'000};
  const auto us = [](std::int64_t n) { return Picos{n * 1'000'000}; };
  const SharedLink link = share_link({us(6), beta, {}}, 1, {us(10), beta, {}}, 3);
  EXPECT_EQ(link.link.alpha, us(2));
  EXPECT_EQ(link.wake, us(4));
  EXPECT_EQ(link.link.beta.bits_per_second, 3 * beta.bits_per_second);
  const SharedLink alike = share_link({us(6), beta, {}}, 2, {us(6), beta, {}}, 2);
  EXPECT_EQ(alike.link.alpha, us(3));
  EXPECT_EQ(alike.wake, us(0));
}

TEST(ShareLink, MeasurementsThatContradictGiveNothingBelowZero) {
  const Bandwidth beta{8'000'000'000};
  const SharedLink faster = share_link({Picos{9000}, beta, {}}, 1, {Picos{6000}, beta, {}}, 3);
  EXPECT_EQ(faster.link.alpha, Picos{});
  EXPECT_EQ(faster.wake, Picos{6000});
  const SharedLink steeper = share_link({Picos{100}, beta, {}}, 1, {Picos{6000}, beta, {}}, 3);
  EXPECT_EQ(steeper.link.alpha, Picos{2000});
  EXPECT_EQ(steeper.wake, Picos{});
}

TEST(FitAllReduce, WhatShowsNoBandwidthIsRefused) {
  EXPECT_FALSE(fit_all_reduce(ring_calls(20e-6, 1e30, 4), 4));
  EXPECT_FALSE(fit_all_reduce({{64, 1e-3}}, 4));
  EXPECT_FALSE(fit_all_reduce({{64, 1e-3}, {1 << 20, 1e-4}}, 4));
  EXPECT_FALSE(fit_all_reduce(ring_calls(20e-6, 1e9, 4), 1));
}

Machine two_cores(double contention, Picos refill) {
  Machine machine = millisecond_kernels();
  machine.cores = 2;
  machine.contention = contention;
  machine.refill = refill;
  return machine;
}

using Ranks = std::vector<std::vector<KernelStep>>;
// With few calls for their work, and with many; each with as many ranks as cores, and with more.
std::vector<Ranks> jobs() {
  const std::vector<KernelStep> long_steps(4, KernelStep{30, 4, ""});
  const std::vector<KernelStep> short_steps(9, KernelStep{3, 0, ""});
  return {Ranks(2, long_steps), Ranks(2, short_steps), Ranks(4, long_steps), Ranks(4, short_steps)};
}

double mean_step(const KernelJob& job) {
  const MeasuredSteps steps =
      measured_steps(step_times(job.run, job.program, job.folding, job.result));
  return steps.seconds() / static_cast<double>(steps.count);
}

TEST(FitSharing, FindsWhatMadeTheStepsSoLong) {
  for (const auto& [contention, refill] :
       {std::pair(1.3, ms(0.8)), std::pair(1.05, ms(0)), std::pair(2.0, ms(1.5))}) {
    std::vector<double> seconds;
    for (const Ranks& ranks : jobs())
      seconds.push_back(mean_step(KernelJob(ranks, two_cores(contention, refill))));
    Machine machine = two_cores(1, Picos{});
    std::vector<KernelJob> unfitted;
    for (const Ranks& ranks : jobs()) unfitted.emplace_back(ranks, machine);
    std::vector<MeasuredJob> measured;
    for (std::size_t i = 0; i < unfitted.size(); ++i)
      measured.push_back({&unfitted[i].run, &unfitted[i].program, seconds[i]});
    ASSERT_TRUE(fit_sharing(measured, machine));
    EXPECT_NEAR(machine.contention, contention, 0.02);
    EXPECT_NEAR(machine.refill.seconds(), refill.seconds(), 0.1e-3);
  }
}

TEST(FitSharing, JobsThatAreFasterThanTheirWorkSlowNothingDown) {
  Machine machine = two_cores(1.5, ms(1));
  const KernelJob job(jobs().front(), machine);
  ASSERT_TRUE(fit_sharing({{&job.run, &job.program, 1e-3}}, machine));
  EXPECT_DOUBLE_EQ(machine.contention, 1);
  EXPECT_EQ(machine.refill, Picos{});
}

}  // namespace
}  // namespace lockstep::sim
