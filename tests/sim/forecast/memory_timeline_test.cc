// Memory on the simulated clock: when what is held, by hand.
#include "sim/forecast/memory_timeline.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/forecast/timed_run.h"
#include "sim/machine/work_time.h"
#include "tests/sim/machine/kernel_job.h"
#include "tests/verify/program.h"

namespace lockstep::sim {
namespace {

using Before = trace::WorkCost::Before;
using Category = trace::MemoryCategory;

constexpr std::int64_t kMillisecond = 1'000'000'000;

// Holds `state` all the time, and `most` more while it works.
trace::WorkCost segment(Before before, std::int64_t id, std::int64_t step, std::int64_t kernels,
                        std::int64_t state, std::int64_t most, std::int64_t left) {
  trace::WorkCost out;
  out.before = before;
  out.id = id;
  out.step = step;
  out.kernels = kernels;
  out.memory.emplace();
  out.memory->end[Category::parameters] = state;
  out.memory->end[Category::activations] = left;
  out.memory->peak = out.memory->end;
  out.memory->peak[Category::activations] = 0;
  out.memory->peak[Category::temporary] = most;
  return out;
}

const std::string kMemoryProgram =
    "all_reduce n=0 dtype=float32 what=w step=0 async open; wait 0; step 0;"
    "all_reduce n=0 dtype=float32 what=w step=1 async open; wait 1; step 1; clean";

// Three kernels, an all-reduce of 2 ms while one more kernel runs, a wait; twice.
trace::RankCosts memory_of_rank(std::int32_t rank, std::int64_t state,
                                std::int64_t most_in_step_1 = 70) {
  trace::RankCosts out{rank, 0, 0, {}};
  for (std::int64_t s = 0; s < 2; ++s) {
    const std::int64_t most = s == 1 ? most_in_step_1 : 60;
    out.work.push_back(segment(Before::call, s, s, 3, state, most, 50));
    out.work.push_back(segment(Before::wait, s, s, 1, state, 55, 40));
    out.work.push_back(segment(Before::step, s, s, 0, state, 40, 0));
  }
  return out;
}

std::vector<MemoryTimeline> timelines_of(const std::vector<const trace::RankCosts*>& costs) {
  const Machine machine = millisecond_kernels();
  const Result<trace::Run> run =
      timed_run(verify::program(std::vector<std::string>(costs.size(), kMemoryProgram), false),
                costs, std::vector<std::int64_t>(costs.size(), 0), machine);
  EXPECT_TRUE(run) << run.error().str();
  const RunProgram program = *program_of(*run);
  const CostOfCall cost = [&](std::uint32_t group, const ProgramCall& call) {
    return CallCost{*call_time(call, layout_of(program.job.groups[group].members, 64), machine)};
  };
  const Folding folding = fold(program.job);
  return memory_timelines(*run, program, folding,
                          execute(program.job, folding, cost, {Picos{}, /*record_issues=*/true}),
                          costs);
}

TEST(MemoryTimeline, SegmentsLieWhereTheSimulatedClockHasThem) {
  const trace::RankCosts own = memory_of_rank(0, 100);
  const std::vector<MemoryTimeline> timelines = timelines_of({&own, &own});
  ASSERT_EQ(timelines.size(), 1U);
  EXPECT_EQ(timelines[0].ranks, (std::vector<std::int32_t>{0, 1}));
  const std::vector<MemorySegment>& segments = timelines[0].segments;
  ASSERT_EQ(segments.size(), 6U);
  // 3 ms of work; 1 ms until the wait, which ends with the call, after 5 ms.
  const std::vector<std::pair<std::int64_t, std::int64_t>> expected = {{0, 3}, {3, 4}, {5, 5},
                                                                       {5, 8}, {8, 9}, {10, 10}};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(segments[i].begin.value, expected[i].first * kMillisecond) << i;
    EXPECT_EQ(segments[i].end.value, expected[i].second * kMillisecond) << i;
    EXPECT_EQ(segments[i].step, i < 3 ? 0 : 1) << i;
    EXPECT_EQ(segments[i].memory, *own.work[i].memory) << i;
  }
}

// Two kernels of saving after step 0, one of evaluating after step 1.
TEST(MemoryTimeline, CheckpointsAndEvaluationsHaveSegmentsOfTheirOwn) {
  trace::RankCosts own = memory_of_rank(0, 100);
  own.work.insert(own.work.begin() + 3, segment(Before::checkpoint, 0, 0, 2, 100, 500, 0));
  own.work.push_back(segment(Before::evaluation, 1, 1, 1, 100, 300, 0));
  const std::vector<MemoryTimeline> timelines = timelines_of({&own, &own});
  const std::vector<MemorySegment>& segments = timelines[0].segments;
  ASSERT_EQ(segments.size(), 8U);
  EXPECT_EQ(timelines[0].peak, 3U);
  EXPECT_EQ(segments[3].begin.value, 5 * kMillisecond);
  EXPECT_EQ(segments[3].end.value, 7 * kMillisecond);
  EXPECT_EQ(segments[4].begin.value, 7 * kMillisecond);
  EXPECT_EQ(segments[7].begin.value, 12 * kMillisecond);
  EXPECT_EQ(segments[7].end.value, 13 * kMillisecond);
  for (std::size_t i = 0; i < segments.size(); ++i)
    EXPECT_EQ(segments[i].memory, *own.work[i].memory) << i;
}

TEST(MemoryTimeline, ThePeakIsTheHighestSegmentAndTheFirstOfEqualOnes) {
  const trace::RankCosts higher = memory_of_rank(0, 100);
  const std::vector<MemoryTimeline> late = timelines_of({&higher, &higher});
  EXPECT_EQ(late[0].peak, 3U);
  EXPECT_EQ(late[0].peak_use().total(), 170);
  EXPECT_EQ(late[0].peak_use()[Category::temporary], 70);
  const trace::RankCosts equal = memory_of_rank(0, 100, 60);
  EXPECT_EQ(timelines_of({&equal, &equal})[0].peak, 0U);
}

TEST(MemoryTimeline, RanksThatHoldAnotherAmountAreApartThoughTheyDoTheSame) {
  const trace::RankCosts a = memory_of_rank(0, 100), b = memory_of_rank(1, 300),
                         like_a = memory_of_rank(2, 100);
  const std::vector<MemoryTimeline> timelines = timelines_of({&a, &b, &like_a});
  ASSERT_EQ(timelines.size(), 2U);
  EXPECT_EQ(timelines[0].ranks, (std::vector<std::int32_t>{0, 2}));
  EXPECT_EQ(timelines[1].ranks, (std::vector<std::int32_t>{1}));
  EXPECT_EQ(timelines[1].peak_use().total(), 370);
}

TEST(MemoryTimeline, WhatWasNotCountedHasNone) {
  const trace::RankCosts good = memory_of_rank(0, 100);
  trace::RankCosts other = memory_of_rank(1, 100);
  other.work[4].memory.reset();
  EXPECT_TRUE(timelines_of({&good, &other}).empty());
}

}  // namespace
}  // namespace lockstep::sim
