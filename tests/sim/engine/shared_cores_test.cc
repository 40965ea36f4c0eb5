#include "sim/engine/shared_cores.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/sim/small_jobs.h"

namespace lockstep::sim {
namespace {

SharedCores cores(std::int64_t count, std::size_t ranks) {
  return {
      {count, 1, Picos::forever()}, std::vector<std::uint32_t>(ranks), Picos{}, Picos{}, Picos{}};
}

// Two ranks that only work, each in a program of its own.
ProgramJob two_workers(std::vector<ProgramStep> first, std::vector<ProgramStep> second) {
  ProgramJob job;
  job.programs = {{std::move(first), 0, 0}, {std::move(second), 0, 0}};
  job.ranks = {{0, {}}, {1, {}}};
  return job;
}

TEST(SharedCores, WhoCameFirstRunsUntilItBlocks) {
  const ProgramJob job = two_workers({compute(10), compute(5)}, {compute(30)});
  const ExecutionResult result = execute_on_cores(job, constant(0), cores(1, 2));
  EXPECT_EQ(result.classes[0].ended[0].value, 10);
  EXPECT_EQ(result.classes[0].end.value, 15) << "it keeps its core from step to step";
  EXPECT_EQ(result.classes[1].end.value, 45);
  EXPECT_EQ(result.classes[1].compute.value, 45) << "the time that it took";
  EXPECT_FALSE(result.stuck);
}

TEST(SharedCores, ASliceEndsWhereOthersWait) {
  const ProgramJob job = two_workers({compute(10), compute(15)}, {compute(12)});
  SharedCores shared = cores(1, 2);
  shared.speeds.slice = Picos{8};
  // 0: 8, 1: 8, 0: 2 and 6 of the next step, 1: 4, 0: 9 in two slices, for nobody waits.
  const ExecutionResult result = execute_on_cores(job, constant(0), shared);
  EXPECT_EQ(result.classes[0].ended[0].value, 18);
  EXPECT_EQ(result.classes[1].end.value, 28);
  EXPECT_EQ(result.classes[0].end.value, 37);
}

TEST(SharedCores, SlicesOfNothingComeToAnEnd) {
  constexpr std::int64_t kHour = 3'600'000'000'000'000;
  const ProgramJob job = two_workers({compute(kHour)}, {compute(kHour)});
  SharedCores shared = cores(1, 2);
  shared.speeds.slice = Picos{1};
  const ExecutionResult result = execute_on_cores(job, constant(0), shared);
  EXPECT_EQ(result.end.value, 2 * kHour);
  EXPECT_GT(std::min(result.classes[0].end, result.classes[1].end).value, 199 * (kHour / 100))
      << "they still take turns";
}

TEST(SharedCores, ThreeRanksOnTwoCoresTakeTwoTurnsAtEveryCollective) {
  // Not one and a half, as if cores were divisible.
  const ProgramJob job =
      alike(3, {compute(100), issue(0, 0, true), compute(100), issue(0, 0, true)}, {{}}, 1);
  EXPECT_EQ(execute_on_cores(job, constant(0), cores(2, 3)).end.value, 400);
}

TEST(SharedCores, ACallWaitsForACoreAtEachOfItsHops) {
  // Two hops, each: wakes for 10, works for 5.
  const CostOfCall call = [](std::uint32_t, const ProgramCall&) {
    return CallCost{Picos{10}, /*hops=*/2};
  };
  const auto two_hops = [](std::int64_t count, std::size_t ranks) {
    SharedCores out = cores(count, ranks);
    out.wake = Picos{10};
    return out;
  };
  const ProgramJob alone = alike(2, {issue(0, 0, true)}, {{}}, 1);
  EXPECT_EQ(execute_on_cores(alone, call, two_hops(2, 2)).end.value, 30);
  EXPECT_EQ(execute_on_cores(alone, call, two_hops(1, 2)).end.value, 40) << "10 + 5 + 5, twice";
  // Beside work of 100 on the only core the first hop waits for its end; with slices, for theirs.
  const ProgramJob beside = alike(1, {issue(0, 0), compute(100), wait(0)}, {{}}, 1);
  SharedCores shared = two_hops(1, 1);
  EXPECT_EQ(execute_on_cores(beside, call, shared).end.value, 100 + 5 + 10 + 5);
  shared.speeds.slice = Picos{20};
  // At 20 and at 25 + 20, each for 5.
  const ExecutionResult result = execute_on_cores(beside, call, shared);
  EXPECT_EQ(result.classes[0].ended[0].value, 50);
  EXPECT_EQ(result.classes[0].began[0].value, 0);
  EXPECT_EQ(result.end.value, 110);
  EXPECT_EQ(execute_on_cores(beside, call, two_hops(2, 1)).classes[0].ended[0].value, 30);
}

TEST(SharedCores, AGroupThatHasRestedStartsLater) {
  constexpr std::int64_t kRested = kRest.value;
  SharedCores shared = cores(2, 1);
  shared.start = Picos{7};
  // The first call of all, one right after it, and one after a rest.
  const ProgramJob job = alike(
      1, {issue(0, 0, true), issue(0, 0, true), compute(kRested), issue(0, 0, true)}, {{}}, 1);
  const ExecutionResult result = execute_on_cores(job, constant(10), shared);
  EXPECT_EQ(result.classes[0].ended[0].value, 17);
  EXPECT_EQ(result.classes[0].ended[1].value, 27);
  EXPECT_EQ(result.end.value, 27 + kRested + 17);
  const ProgramJob shorter =
      alike(1, {issue(0, 0, true), compute(kRested - 1), issue(0, 0, true)}, {{}}, 1);
  EXPECT_EQ(execute_on_cores(shorter, constant(10), shared).end.value, 17 + kRested - 1 + 10);
}

TEST(SharedCores, WorkAfterAWaitTakesLonger) {
  SharedCores shared = cores(2, 1);
  shared.refill = Picos{30};
  const auto end_of = [&](std::vector<ProgramStep> steps) {
    return execute_on_cores(alike(1, std::move(steps), {{}}, 1), constant(100), shared).end.value;
  };
  EXPECT_EQ(end_of({compute(50), compute(50)}), 100) << "nobody had its caches";
  EXPECT_EQ(end_of({issue(0, 0, true), compute(50)}), 100 + 50 + 30);
  EXPECT_EQ(end_of({issue(0, 0, true), compute(20), compute(50)}), 100 + 40 + 60)
      << "short work refills as much as it takes, and the next the rest";
  EXPECT_EQ(end_of({issue(0, 0, true), compute(50), compute(50)}), 100 + 80 + 50);
  EXPECT_EQ(end_of({issue(0, 0), compute(90), wait(0), compute(50)}), 90 + 10 + 60)
      << "a wait of 10 costs no more than 10";
  EXPECT_EQ(end_of({issue(0, 0), compute(150), wait(0), compute(50)}), 200) << "it did not wait";
}

TEST(SharedCores, BusyNeighboursSlowDownInProportion) {
  // Three cores, all busy: twice as slow. Two busy ones: half of that.
  const auto end_of = [](std::uint32_t ranks) {
    SharedCores shared = cores(3, ranks);
    shared.speeds.contention = 2;
    return execute_on_cores(alike(ranks, {compute(100)}, {}, 0), constant(0), shared).end.value;
  };
  EXPECT_EQ(end_of(3), 200);
  EXPECT_EQ(end_of(2), 150);
  EXPECT_EQ(end_of(1), 100);
}

TEST(SharedCores, NodesShareNothing) {
  SharedCores shared = cores(1, 2);
  shared.node_of = {0, 1};
  EXPECT_EQ(
      execute_on_cores(two_workers({compute(10)}, {compute(30)}), constant(0), shared).end.value,
      30);
}

TEST(SharedCores, WhatNeverEndsIsSaid) {
  const ExecutionResult result = execute_on_cores(alike(2, {issue(0, 0, true)}, {{}}, 1),
                                                  constant(Picos::forever().value), cores(1, 2));
  EXPECT_TRUE(result.end.is_forever());
}

TEST(SharedCores, WithACoreForEverythingTheTimesAreThoseOfTheLongestPath) {
  Draw random;
  std::size_t stuck = 0;
  for (int round = 0; round < 300; ++round) {
    const ProgramJob job = drawn_job(random);
    const ExecutionResult path =
        execute(job, unfolded(job), constant(4), {Picos{}, /*record_issues=*/true});
    const ExecutionResult result = execute_on_cores(job, constant(4), cores(64, 16));
    EXPECT_EQ(result.stuck, path.stuck);
    EXPECT_EQ(result.end, path.end);
    for (std::size_t r = 0; r < 16; ++r) {
      EXPECT_EQ(result.classes[r].ended, path.classes[r].ended) << round << " " << r;
      EXPECT_EQ(result.classes[r].issued, path.classes[r].issued);
      EXPECT_EQ(result.classes[r].began, path.classes[r].began);
      EXPECT_EQ(result.classes[r].next, path.classes[r].next);
      EXPECT_EQ(result.classes[r].waiting, path.classes[r].waiting);
      EXPECT_EQ(result.classes[r].compute, path.classes[r].compute);
    }
    stuck += result.stuck;
  }
  EXPECT_GT(stuck, 20U);
}

// However few cores there are: as much is worked as cores can, and whoever hangs hangs anyway.
TEST(SharedCores, FewerCoresAreAsSlowAsTheirWorkAndHangNobody) {
  Draw random;
  for (int round = 0; round < 100; ++round) {
    const ProgramJob job = drawn_job(random);
    const ExecutionResult path = execute(job, unfolded(job), constant(4));
    Picos work;
    for (const RankOutcome& rank : path.classes) work += rank.compute;
    for (const std::int64_t count : {1, 2, 3, 16}) {
      const ExecutionResult result = execute_on_cores(job, constant(4), cores(count, 16));
      EXPECT_EQ(result.stuck, path.stuck);
      EXPECT_GE(result.end, path.end);
      EXPECT_GE(result.end.value, work.value / count);
      for (std::size_t r = 0; r < 16; ++r)
        EXPECT_EQ(result.classes[r].next, path.classes[r].next) << round << " " << r;
    }
  }
}

}  // namespace
}  // namespace lockstep::sim
