#include "sim/engine/shared_cores.h"

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "sim/small_jobs.h"

namespace lockstep::sim {
namespace {

SharedCores cores(std::int64_t count, std::size_t ranks, double contention = 1) {
  return {count, contention, std::vector<std::uint32_t>(ranks)};
}

// Two ranks that only work, each in a program of its own.
ProgramJob two_workers(std::int64_t first, std::int64_t second) {
  ProgramJob job;
  job.programs = {{{compute(first)}, 0, 0}, {{compute(second)}, 0, 0}};
  job.ranks = {{0, {}}, {1, {}}};
  return job;
}

TEST(SharedCores, OneCoreIsSharedAlikeUntilTheShorterWorkEnds) {
  // Both get half of the core until 10 of each are done, at 20; the rest of the longer takes 20.
  const ExecutionResult result = execute_on_cores(two_workers(10, 30), constant(0), cores(1, 2));
  EXPECT_EQ(result.classes[0].end.value, 20);
  EXPECT_EQ(result.classes[1].end.value, 40);
  EXPECT_EQ(result.classes[1].compute.value, 40) << "the time that it took";
  EXPECT_FALSE(result.stuck);
}

TEST(SharedCores, WorkThatComesLaterSlowsDownWhatIsThere) {
  // On one core: 10 alone, then half each. The second rank's 10 are done 20 later.
  ProgramJob job = two_workers(30, 10);
  job.programs[0].steps = {compute(40)};
  job.programs[1].steps = {compute(10), compute(10)};
  const ExecutionResult result = execute_on_cores(job, constant(0), cores(1, 2));
  EXPECT_EQ(result.classes[1].ended[0].value, 20);
  EXPECT_EQ(result.classes[1].ended[1].value, 40);
  EXPECT_EQ(result.classes[0].end.value, 60);
}

TEST(SharedCores, ACallIsWorkOfItsRanksAndSlowsDownWhatTheyCompute) {
  // An asynchronous call of 20 beside 20 of work, two ranks on two cores: four that want to go on.
  const ProgramJob job = alike(2, {meet(0, 0), compute(20), wait(0)}, {{}}, 1);
  const ExecutionResult shared = execute_on_cores(job, constant(20), cores(2, 2));
  EXPECT_EQ(shared.end.value, 40);
  EXPECT_EQ(execute_on_cores(job, constant(20), cores(4, 2)).end.value, 20);
  EXPECT_EQ(shared.classes[0].ended[0].value, 40);
  EXPECT_EQ(shared.classes[0].began[0].value, 0);
}

TEST(SharedCores, BusyNeighboursSlowDownInProportion) {
  // Three cores, all busy: twice as slow. Two busy ones: half of that.
  ProgramJob job = alike(3, {compute(100)}, {}, 0);
  EXPECT_EQ(execute_on_cores(job, constant(0), cores(3, 3, 2)).end.value, 200);
  job = alike(2, {compute(100)}, {}, 0);
  EXPECT_EQ(execute_on_cores(job, constant(0), cores(3, 2, 2)).end.value, 150);
  job = alike(1, {compute(100)}, {}, 0);
  EXPECT_EQ(execute_on_cores(job, constant(0), cores(3, 1, 2)).end.value, 100);
}

TEST(SharedCores, NodesShareNothing) {
  SharedCores shared = cores(1, 2);
  shared.node_of = {0, 1};
  EXPECT_EQ(execute_on_cores(two_workers(10, 30), constant(0), shared).end.value, 30);
}

TEST(SharedCores, WhatNeverEndsIsSaid) {
  const ExecutionResult result = execute_on_cores(
      alike(2, {meet(0, 0, true)}, {{}}, 1),
      [](std::uint32_t, const ProgramCall&) { return Picos::forever(); }, cores(1, 2));
  EXPECT_TRUE(result.end.is_forever());
}

TEST(SharedCores, WithACoreForEverythingTheTimesAreThoseOfTheLongestPath) {
  Draw random;
  std::size_t stuck = 0;
  for (int round = 0; round < 300; ++round) {
    const ProgramJob job = drawn_job(random);
    const ExecutionResult path =
        execute(job, keep_apart(job), constant(4), {Picos{}, /*record_issues=*/true});
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
    const ExecutionResult path = execute(job, keep_apart(job), constant(4));
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
