// From derived calls and costs to step times: what the simulated clock must show, by hand.

#include "sim/forecast/forecast.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/forecast/timed_run.h"
#include "sim/machine/simulated_job.h"
#include "sim/machine/work_time.h"
#include "tests/sim/machine/kernel_job.h"
#include "tests/verify/program.h"
#include "trace/spread.h"
#include "verify/verify.h"

namespace lockstep::sim {
namespace {

using testing::HasSubstr;
using Before = trace::WorkCost::Before;

// Two steps: so many kernels, an all-reduce of nothing, so many more while it runs, a wait.
const std::string kForecastProgram =
    "all_reduce n=0 dtype=float32 what=w step=0 async open; wait 0; step 0;"
    "all_reduce n=0 dtype=float32 what=w step=1 async open; wait 1; step 1; clean";
trace::RankCosts times_of_rank(std::int32_t rank, std::int64_t before, std::int64_t beside) {
  trace::RankCosts out{rank, 0, 0, {}};
  for (std::int64_t s = 0; s < 2; ++s) {
    out.work.push_back(kernels(Before::call, s, s, before));
    out.work.push_back(kernels(Before::wait, s, s, beside));
    out.work.push_back(kernels(Before::step, s, s, 0));
  }
  return out;
}

Result<trace::Run> timed(const std::vector<trace::RankCosts>& costs, const Machine& machine,
                         std::int64_t samples = 0) {
  std::vector<const trace::RankCosts*> pointers;
  for (const trace::RankCosts& own : costs) pointers.push_back(&own);
  return timed_run(verify::program(std::vector<std::string>(costs.size(), kForecastProgram), false),
                   pointers, std::vector<std::int64_t>(costs.size(), samples), machine);
}

Forecast forecast_of(const std::vector<trace::RankCosts>& costs, const Machine& machine,
                     std::int64_t samples = 0) {
  const Result<trace::Run> run = timed(costs, machine, samples);
  EXPECT_TRUE(run) << run.error().str();
  const RunProgram program = *program_of(*run);
  const std::vector<GroupLayout> layouts = layouts_of(program.job, 64);
  const Prices prices = *prices_on(machine, program.job, layouts);
  const CostOfCall cost = prices.cost_in(program.job);
  if (machine.cores) {
    const SharedCores shared = shared_cores(machine, program.job.ranks.size());
    return forecast(*run, program, unfolded(program.job),
                    execute_on_cores(program.job, cost, shared), layouts);
  }
  const Folding folding = fold(program.job);
  return forecast(*run, program, folding,
                  execute(program.job, folding, cost, {Picos{}, /*record_issues=*/true}), layouts);
}

TEST(Forecast, AStepIsItsWorkAndTheCallThatIsWaitedFor) {
  // Two ranks: an all-reduce takes two hops, 2 ms, of which 1 ms is hidden.
  const Forecast f =
      forecast_of({times_of_rank(0, 3, 1), times_of_rank(1, 3, 1)}, millisecond_kernels());
  ASSERT_EQ(f.times.size(), 2U);
  EXPECT_EQ(f.step_time.value, 5'000'000'000);
  ASSERT_EQ(f.classes.size(), 1U);
  EXPECT_DOUBLE_EQ(f.classes[0].busy, 4e-3);
  EXPECT_DOUBLE_EQ(f.classes[0].exposed, 1e-3);
  EXPECT_DOUBLE_EQ(f.classes[0].idle, 0);
  EXPECT_DOUBLE_EQ(f.classes[0].hidden, 1e-3);
  EXPECT_DOUBLE_EQ(f.calls, 1);
}

TEST(Forecast, WorkThatIsLongEnoughHidesTheWholeCall) {
  const Forecast f =
      forecast_of({times_of_rank(0, 3, 2), times_of_rank(1, 3, 2)}, millisecond_kernels());
  EXPECT_EQ(f.step_time.value, 5'000'000'000);
  EXPECT_DOUBLE_EQ(f.classes[0].exposed, 0);
  EXPECT_DOUBLE_EQ(f.classes[0].hidden, 2e-3);
}

TEST(Forecast, EarlyRanksAreIdleUntilTheStragglerComes) {
  const Forecast f =
      forecast_of({times_of_rank(0, 1, 0), times_of_rank(1, 5, 0)}, millisecond_kernels());
  EXPECT_EQ(f.step_time.value, 7'000'000'000);
  ASSERT_EQ(f.classes.size(), 2U);
  EXPECT_DOUBLE_EQ(f.classes[0].idle, 4e-3);
  EXPECT_DOUBLE_EQ(f.classes[0].exposed, 2e-3);
  EXPECT_DOUBLE_EQ(f.classes[1].idle, 0);
  EXPECT_DOUBLE_EQ(f.classes[1].exposed, 2e-3);
}

TEST(Forecast, RanksThatShareCoresTakeTurns) {
  Machine machine = millisecond_kernels();
  machine.cores = 1;
  const Forecast f = forecast_of({times_of_rank(0, 3, 0), times_of_rank(1, 3, 0)}, machine);
  EXPECT_EQ(f.times.ends().back().value, 20'000'000'000) << "3 ms of work and 2 of the call, each";
  machine.cores = 2;
  EXPECT_EQ(forecast_of({times_of_rank(0, 3, 0), times_of_rank(1, 3, 0)}, machine).step_time.value,
            5'000'000'000);
}

TEST(Forecast, SamplesArePreparedWhereNoCoreIsLeftOver) {
  Machine machine = millisecond_kernels();
  machine.sample = Picos{500'000'000};
  machine.cores = 2;
  EXPECT_EQ(
      forecast_of({times_of_rank(0, 3, 0), times_of_rank(1, 3, 0)}, machine, 4).step_time.value,
      7'000'000'000);
  machine.cores = 4;
  EXPECT_EQ(
      forecast_of({times_of_rank(0, 3, 0), times_of_rank(1, 3, 0)}, machine, 4).step_time.value,
      5'000'000'000);
}

TEST(Forecast, SaysWhatARankDoesInEachStep) {
  const KernelJob job({{{1, 0, ""}, {2, 3, ""}}, {{5, 0, ""}, {2, 0, ""}}});
  const Forecast f = job.forecast();
  ASSERT_EQ(f.steps.size(), 2U);
  ASSERT_EQ(f.steps[0].size(), 2U);
  EXPECT_EQ(f.steps[0][0].begin, Picos{});
  EXPECT_EQ(f.steps[0][0].end, ms(7));
  EXPECT_DOUBLE_EQ(f.steps[0][0].use.idle, 4e-3);
  EXPECT_DOUBLE_EQ(f.steps[0][0].use.exposed, 2e-3);
  EXPECT_EQ(f.steps[0][1].begin, ms(7));
  EXPECT_EQ(f.steps[0][1].end, ms(12));
  EXPECT_DOUBLE_EQ(f.steps[0][1].use.busy, 5e-3);
  EXPECT_DOUBLE_EQ(f.steps[0][1].use.hidden, 2e-3);
  EXPECT_DOUBLE_EQ(f.steps[1][1].use.exposed, 2e-3);
  // The first step is not measured.
  EXPECT_DOUBLE_EQ(f.classes[0].busy, 5e-3);
}

// Rank 0 writes for 4 ms after step 0, and both for 1 ms after step 1. Steps take 3 ms of work and
// 2 ms of the call, in which rank 1 waits for rank 0 once.
// The intervals of the drawn step are those that its sums add up.
TEST(Forecast, DrawsTheTypicalStepIntervalByInterval) {
  using enum Interval::Kind;
  // Steps of 9, 7 and 6 ms after the first: the second of them is the median. Rank 0 works 2 ms
  // less than rank 1 before the call of 2 ms, and 1 ms beside it.
  const KernelJob job({{{1, 0, ""}, {5, 1, ""}, {3, 1, ""}, {2, 1, ""}},
                       {{1, 0, ""}, {7, 0, ""}, {5, 0, ""}, {4, 0, ""}}});
  const Forecast f = job.forecast();
  ASSERT_EQ(f.step_time, ms(7));
  EXPECT_EQ(f.timeline.step, 2U);
  const Picos begin = f.times.begin(2);
  ASSERT_EQ(f.timeline.classes.size(), 2U);
  EXPECT_THAT(f.timeline.classes[0].host,
              testing::ElementsAre(Interval{begin, begin + ms(4), computes},
                                   Interval{begin + ms(4), begin + ms(5), idle},
                                   Interval{begin + ms(5), begin + ms(7), exposed}));
  EXPECT_THAT(f.timeline.classes[1].host,
              testing::ElementsAre(Interval{begin, begin + ms(5), computes},
                                   Interval{begin + ms(5), begin + ms(7), exposed}));
  for (const StepTimeline::Lane& lane : f.timeline.classes)
    EXPECT_THAT(lane.calls, testing::ElementsAre(Interval{begin + ms(5), begin + ms(7), call}));
}

TEST(Forecast, ACheckpointBelongsToNoStep) {
  const KernelJob job(
      {{{3, 0, "", 4}, {3, 0, "", 1}, {3, 0, ""}}, {{3, 0, "", 0}, {3, 0, "", 1}, {3, 0, ""}}});
  const Forecast f = job.forecast();
  ASSERT_EQ(f.times.size(), 3U);
  EXPECT_EQ(f.times.ends(), (std::vector<Picos>{ms(5), ms(14), ms(20)}));
  EXPECT_EQ(f.times.begin(1), ms(9));
  EXPECT_EQ(f.times.begin(2), ms(15));
  EXPECT_EQ(f.times.after(0), ms(4));
  EXPECT_EQ(f.times.after(1), ms(1));
  EXPECT_EQ(f.times.after(2), ms(0));
  EXPECT_EQ(f.step_time, ms(5));
  EXPECT_EQ(f.times.evaluation(), std::nullopt);
  const MeasuredSteps measured = measured_steps(f.times);
  EXPECT_EQ(measured.begin, ms(9));
  EXPECT_EQ(measured.end, ms(20));
  EXPECT_EQ(measured.in_steps, ms(10));
  ASSERT_EQ(f.steps.size(), 2U);
  EXPECT_EQ(f.steps[0][1].begin, ms(9));
  EXPECT_EQ(f.steps[1][1].begin, ms(5));
  EXPECT_EQ(f.steps[1][2].begin, ms(15));
  EXPECT_DOUBLE_EQ(f.steps[1][1].use.idle, 4e-3);
  EXPECT_DOUBLE_EQ(f.classes[0].busy, 6e-3);
}

TEST(Forecast, AnEvaluationComesAfterTheLastStep) {
  std::vector<trace::RankCosts> costs = {times_of_rank(0, 3, 1), times_of_rank(1, 3, 1)};
  costs[0].work.push_back(kernels(Before::checkpoint, 1, 1, 2));
  costs[1].work.push_back(kernels(Before::checkpoint, 1, 1, 0));
  costs[0].work.push_back(kernels(Before::evaluation, 1, 1, 7));
  costs[1].work.push_back(kernels(Before::evaluation, 1, 1, 0));
  const Forecast f = forecast_of(costs, millisecond_kernels());
  EXPECT_EQ(f.step_time, ms(5));
  EXPECT_EQ(f.times.ends().back(), ms(10));
  EXPECT_EQ(f.times.after(1), ms(2));
  EXPECT_EQ(f.times.evaluation(), ms(7));
}

TEST(Forecast, CallsOfCheckpointsAreNotThoseOfSteps) {
  const std::string step = "all_reduce n=100 dtype=float32 step=";
  const std::string text = step + "0; step 0; " + step + "0; " + step + "1; step 1; " + step +
                           "1; " + step + "2; step 2; clean";
  trace::RankCosts costs;
  for (std::int64_t s = 0; s < 3; ++s) {
    costs.work.push_back(kernels(Before::call, 2 * s, s, 1));
    costs.work.push_back(kernels(Before::step, s, s, 0));
    if (s == 2) break;
    costs.work.push_back(kernels(Before::call, 2 * s + 1, s, 0));
    costs.work.push_back(kernels(Before::checkpoint, s, s, 0));
  }
  const Machine machine = millisecond_kernels();
  const Result<trace::Run> run =
      timed_run(verify::program({text, text}, false), {&costs, &costs}, {0, 0}, machine);
  ASSERT_TRUE(run) << run.error().str();
  const RunProgram made = *program_of(*run);
  const Folding folding = fold(made.job);
  const CostOfCall cost = [](std::uint32_t, const ProgramCall&) { return CallCost{ms(2)}; };
  const Forecast f =
      forecast(*run, made, folding, execute(made.job, folding, cost, {Picos{}, true}),
               layouts_of(made.job, machine.ranks_per_node));
  EXPECT_EQ(f.step_time, ms(3));
  EXPECT_EQ(f.times.after(0), ms(2));
  EXPECT_DOUBLE_EQ(f.calls, 1);
  EXPECT_DOUBLE_EQ(f.bytes, 400);
}

// The forecast of ranks that make a call in each of two steps, and compute in no time.
Forecast forecast_of_calls(const std::vector<std::string>& texts, const Machine& machine) {
  trace::RankCosts costs;
  for (std::int64_t s = 0; s < 2; ++s) {
    costs.work.push_back(kernels(Before::call, s, s, 1));
    costs.work.push_back(kernels(Before::step, s, s, 0));
  }
  const Result<trace::Run> run = timed_run(
      verify::program(texts, false), std::vector<const trace::RankCosts*>(texts.size(), &costs),
      std::vector<std::int64_t>(texts.size(), 0), machine);
  EXPECT_TRUE(run);
  if (!run) return {};
  const RunProgram made = *program_of(*run);
  const std::vector<GroupLayout> layouts = layouts_of(made.job, machine.ranks_per_node);
  const Folding folding = fold(made.job, kinds_of(layouts));
  const CostOfCall cost = [](std::uint32_t, const ProgramCall&) { return CallCost{Picos{1}}; };
  return forecast(*run, made, folding, execute(made.job, folding, cost, {Picos{}, true}), layouts);
}

// Four ranks on two nodes: what a ring moves over n ranks is 2 (n - 1) / n of the buffer, and of
// the two ranks of a node one hands on to the next node.
TEST(Forecast, BytesAreCountedByLinks) {
  Machine machine = millisecond_kernels();
  machine.ranks_per_node = 2;
  machine.links.push_back(machine.links.front());
  const std::string text =
      "all_reduce n=100 dtype=float32 step=0; step 0; all_reduce n=100 dtype=float32 step=1;"
      "step 1; clean";
  const Forecast f = forecast_of_calls({text, text, text, text}, machine);
  EXPECT_DOUBLE_EQ(f.bytes, 1.5 * 400);
  EXPECT_DOUBLE_EQ(f.bytes_between, 1.5 * 400 / 2);
}

TEST(Forecast, AMessageIsSentByItsSender) {
  const auto side = [](const std::string& op) {
    return op + " n=100 dtype=float32; step 0; " + op + " n=100 dtype=float32; step 1; clean";
  };
  const Forecast f =
      forecast_of_calls({side("send peer=1"), side("recv peer=0")}, millisecond_kernels());
  EXPECT_DOUBLE_EQ(f.bytes, 400.0 / 2);
  EXPECT_DOUBLE_EQ(f.bytes_between, 0);
}

TEST(TimedRun, CostsOfAnotherProgramAreRefused) {
  const Machine machine = millisecond_kernels();
  const std::vector<trace::RankCosts> good = {times_of_rank(0, 1, 1), times_of_rank(1, 1, 1)};
  EXPECT_TRUE(timed(good, machine));
  std::vector<trace::RankCosts> other = good;
  other[1].work[0].id = 7;
  EXPECT_THAT(timed(other, machine).error().message, HasSubstr("rank 1"));
  other = good;
  other[0].work.pop_back();
  EXPECT_FALSE(timed(other, machine));
  other = good;
  other[0].work.push_back(other[0].work.back());
  EXPECT_FALSE(timed(other, machine));
  other = good;
  other[0].work[1].before = Before::checkpoint;
  EXPECT_FALSE(timed(other, machine));
}

TEST(Spread, OneRankStandsForThoseThatDoTheSame) {
  const std::string calls = "all_reduce n=8 dtype=float32 what=w; clean";
  Result<trace::Run> all =
      trace::spread(verify::run_of({{0, calls}, {1, calls}}, 6), {0, 1, 1, 1, 1, 1});
  ASSERT_TRUE(all) << all.error().str();
  ASSERT_EQ(all->ranks.size(), 6U);
  EXPECT_EQ(all->ranks[4].rank.value, 4);
  EXPECT_EQ(all->ranks[4].calls.size(), 1U);
}

TEST(Spread, EachRankOfHsdpCallsInTheGroupOfItsOwnCopy) {
  const auto rank = [](std::int32_t r) {
    const std::string copy = r < 2 ? "shard0 0,1" : "shard1 2,3";
    const std::string calls = r < 2 ? "g=shard0" : "g=shard1";
    const std::string replicate = r % 2 == 0 ? "replicate0 0,2,4" : "replicate1 1,3,5";
    return verify::RankProgram{
        r, "group " + copy + "; group " + replicate + "; all_gather n=8 dtype=float32 " + calls +
               "; all_reduce n=4 dtype=float32 g=" + replicate.substr(0, 10) + "; clean"};
  };
  const auto derived = [&] { return verify::run_of({rank(0), rank(1), rank(2), rank(3)}, 6); };
  const Result<trace::Run> all = trace::spread(derived(), {0, 1, 2, 3, 2, 3}, 2);
  ASSERT_TRUE(all) << all.error().str();
  const trace::RankTrace& last = all->ranks[5];
  EXPECT_EQ(all->tables.str(last.calls[0].group), "shard2");
  EXPECT_EQ(all->tables.str(last.calls[1].group), "replicate1");
  EXPECT_EQ(verify::verify(*all).verdict, verify::Verdict::clean);
  const Result<trace::Run> other = trace::spread(derived(), {0, 1, 2, 3, 3, 2}, 2);
  ASSERT_FALSE(other) << "rank 3 holds another shard than rank 4";
  EXPECT_THAT(other.error().message, HasSubstr("another index in its copy"));
}

TEST(Spread, NobodyStandsForARankOfAnotherGroup) {
  const auto refusal = [](const std::string& text) {
    const Result<trace::Run> all =
        trace::spread(verify::run_of({{0, text}, {1, text}}, 4), {0, 1, 1, 1});
    return all ? std::string("accepted") : all.error().str();
  };
  EXPECT_EQ(refusal("all_reduce n=8 dtype=float32 what=w; clean"), "accepted");
  EXPECT_THAT(refusal("group few 0,1,2; all_reduce g=few n=8 dtype=float32; clean"),
              HasSubstr("few"));
  EXPECT_THAT(refusal("send peer=0 n=8 dtype=float32; clean"), HasSubstr("messages"));
}

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
