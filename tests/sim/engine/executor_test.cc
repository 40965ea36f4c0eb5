#include "sim/engine/executor.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "sim/collectives/closed_form.h"
#include "tests/sim/small_jobs.h"

namespace lockstep::sim {
namespace {

TEST(Executor, AHundredStepsOfComputeAndRingGiveThePublishedInteger) {
  // 64 ranks x 100 x (50 us + ring all-reduce of 16 MiB at 500 ns and 50 GB/s).
  std::vector<ProgramStep> steps;
  for (int i = 0; i < 100; ++i) {
    steps.push_back(compute(50'000'000));
    steps.push_back(issue(0, 0, true));
  }
  ProgramCall call;
  call.bytes = Bytes{16 << 20};
  const ProgramJob job = alike(64, steps, {call}, 1);
  const Links links = {{Picos{500'000}, Bandwidth{400'000'000'000}, std::nullopt}};
  const CostOfCall cost = [&](std::uint32_t, const ProgramCall& c) {
    return CallCost{*closed_form({trace::Op::all_reduce, Algorithm::ring, 64, c.bytes}, links)};
  };
  for (const Folding& folding : {fold(job), unfolded(job)}) {
    const ExecutionResult result = execute(job, folding, cost);
    EXPECT_FALSE(result.stuck);
    EXPECT_EQ(result.end.value, 77'360'288'000);
    EXPECT_EQ(result.classes[0].compute.value, 100 * 50'000'000LL);
  }
  EXPECT_EQ(fold(job).representatives.size(), 1U);
  EXPECT_EQ(unfolded(job).representatives.size(), 64U);
}

TEST(Executor, AsynchronousCallsOverlapWithComputeUntilTheWait) {
  const ProgramJob job = alike(2, {issue(0, 0), compute(30), wait(0), compute(5)}, {{}}, 1);
  const ExecutionResult result = execute(job, fold(job), constant(100));
  EXPECT_EQ(result.end.value, 105);
  EXPECT_EQ(result.classes[0].waiting.value, 70);
  EXPECT_EQ(result.classes[0].compute.value, 35);
}

TEST(Executor, AStreamContinuesWhenTheOneItFollowsIsDone) {
  // A kernel of 10, a call after it in stream 1, a kernel of 30 beside the call, one of 5 after it.
  const std::vector<ProgramStep> steps = {compute(10, 0), follow(0, 1),  issue(0, 1),
                                          compute(30, 0), follow(2, 0),  compute(5, 0),
                                          compute(1),     compute(2, 1), wait(5)};
  // The call begins at 10 and is over before the second kernel, or after it.
  for (const auto& [call, end] : {std::pair(20, 45), std::pair(100, 115)}) {
    const ProgramJob job = alike(2, steps, {{}}, 2);
    const ExecutionResult result = execute(job, fold(job), constant(call));
    EXPECT_FALSE(result.stuck);
    EXPECT_EQ(result.end.value, end);
    EXPECT_EQ(result.classes[0].ended[2].value, 10 + call);
    EXPECT_EQ(result.classes[0].ended[4].value, std::max(40, 10 + call));
    EXPECT_EQ(result.classes[0].ended[7].value, 12 + call);
    EXPECT_EQ(result.classes[0].compute.value, 48);
  }
}

TEST(Executor, StreamsThatFollowEachOtherMoveOnlyForwards) {
  // Three streams, each waiting for the one before, which waits for a call that comes late.
  ProgramJob job =
      alike(2, {issue(0, 0), follow(0, 1), compute(3, 1), follow(2, 2), compute(4, 2)}, {{}}, 3);
  job.programs.push_back({{compute(50), issue(0, 0)}, 1, 1});
  job.ranks[1].program = 1;
  const ExecutionResult result = execute(job, fold(job), constant(7));
  EXPECT_FALSE(result.stuck);
  EXPECT_EQ(result.end.value, 50 + 7 + 3 + 4);
  // Where the call is never complete, neither is what follows it.
  job.programs[1].steps.pop_back();
  const ExecutionResult stuck = execute(job, fold(job), constant(7));
  EXPECT_TRUE(stuck.stuck);
  EXPECT_FALSE(stuck.classes[0].done);
  EXPECT_EQ(stuck.classes[0].ended[2], RankOutcome::kNever);
}

TEST(Executor, PrefetchOverlapsAsTheFormulaForFsdpSays) {
  // L layers, gathering g, computing c, one prefetch: g + c + (L-1) max(g, c).
  for (const auto& [g, c] : {std::pair(70, 40), std::pair(40, 70), std::pair(50, 50)}) {
    constexpr int kLayers = 5;
    std::vector<ProgramStep> steps = {issue(0, 0)};
    std::uint32_t gathered = 0;
    for (int layer = 0; layer < kLayers; ++layer) {
      const std::uint32_t waited = gathered;
      steps.push_back(wait(waited));
      if (layer + 1 < kLayers) {
        gathered = static_cast<std::uint32_t>(steps.size());
        steps.push_back(issue(0, 0));
      }
      steps.push_back(compute(c));
    }
    const ProgramJob job = alike(4, steps, {{}}, 1);
    EXPECT_EQ(execute(job, fold(job), constant(g)).end.value,
              g + c + (kLayers - 1) * std::max(g, c));
  }
}

TEST(Executor, TheHostPaysForEveryLaunchAndStreamsRunInOrder) {
  const ProgramJob job = alike(2, {compute(50, 0), compute(50, 0), issue(0, 0), wait(2)}, {{}}, 1);
  const ExecutionResult result = execute(job, fold(job), constant(10), {Picos{7}, false});
  EXPECT_EQ(result.end.value, 7 + 50 + 50 + 10);
}

TEST(Executor, EverybodyWaitsForTheSlowest) {
  ProgramJob job = alike(3, {compute(10), issue(0, 0, true)}, {{}}, 1);
  job.programs.push_back({{compute(90), issue(0, 0, true)}, 1, 1});
  job.ranks[2].program = 1;
  const Folding folding = fold(job);
  ASSERT_EQ(folding.representatives.size(), 2U);
  const ExecutionResult result = execute(job, folding, constant(5));
  EXPECT_EQ(result.end.value, 95);
  EXPECT_EQ(result.classes[folding.class_of[0]].waiting.value, 85);
  EXPECT_EQ(result.classes[folding.class_of[2]].waiting.value, 5);
}

TEST(Executor, TwoGroupsInOppositeOrderHangOnOneStreamAndNotOnTwo) {
  for (const bool one_stream : {true, false}) {
    ProgramJob job;
    const std::uint8_t second = one_stream ? 0 : 1;
    const auto order = [&](std::uint16_t first, std::uint16_t then) {
      return Program{{issue(0, first == 0 ? 0 : second, false, first),
                      issue(0, then == 0 ? 0 : second, false, then), wait(0), wait(1)},
                     2,
                     2};
    };
    job.programs = {order(0, 1), order(1, 0)};
    job.calls.resize(1);
    job.groups = {{{0, 1}}, {{0, 1}}};
    job.ranks = {{0, {0, 1}}, {1, {0, 1}}};
    const ExecutionResult result = execute(job, fold(job), constant(10));
    EXPECT_EQ(result.stuck, one_stream);
    if (!one_stream) {
      EXPECT_EQ(result.end.value, 10);
    }
  }
}

TEST(Executor, CallsThatDisagreeNeverEnd) {
  ProgramJob job = alike(2, {issue(0, 0, true)}, {{}, {}}, 1);
  job.calls[0].elements = 4;
  job.calls[1].elements = 5;
  job.programs.push_back({{issue(1, 0, true)}, 1, 1});
  job.ranks[1].program = 1;
  EXPECT_TRUE(execute(job, fold(job), constant(1)).stuck);
  job.calls[1].elements = trace::kNone;  // not known: held against nobody
  EXPECT_FALSE(execute(job, fold(job), constant(1)).stuck);
}

TEST(Fold, GroupsOfEquivalentRanksAreOneClass) {
  // 4 x 4 ranks: rows and columns; each does a call in its row, then in its column.
  ProgramJob job;
  job.programs = {{{compute(10), issue(0, 0, true, 0), issue(0, 1, true, 1)}, 2, 2}};
  job.calls.resize(1);
  job.groups.resize(8);
  for (std::uint32_t r = 0; r < 16; ++r) {
    job.ranks.push_back({0, {r / 4, 4 + r % 4}});
    job.groups[r / 4].members.push_back(static_cast<std::int32_t>(r));
    job.groups[4 + r % 4].members.push_back(static_cast<std::int32_t>(r));
  }
  Folding folding = fold(job);
  EXPECT_EQ(folding.representatives.size(), 1U);
  EXPECT_EQ(execute(job, folding, constant(3)).end.value, 16);

  // One slow rank: itself, its row, its column, and everybody else.
  job.programs.push_back({{compute(50), issue(0, 0, true, 0), issue(0, 1, true, 1)}, 2, 2});
  job.ranks[5].program = 1;
  folding = fold(job);
  EXPECT_EQ(folding.representatives.size(), 4U);
  const ExecutionResult folded = execute(job, folding, constant(3));
  const ExecutionResult apart = execute(job, unfolded(job), constant(3));
  for (std::size_t r = 0; r < 16; ++r)
    EXPECT_EQ(folded.classes[folding.class_of[r]].end, apart.classes[r].end) << r;
}

// Folded and apart, every rank ends at the same time, or hangs at the same step.
TEST(Fold, GivesEveryRankTheTimesItHasWhenAllAreSimulated) {
  Draw random;
  std::size_t stuck = 0;
  std::size_t folded_away = 0;
  for (int round = 0; round < 300; ++round) {
    const ProgramJob job = drawn_job(random);
    const Folding folding = fold(job);
    const ExecutionResult folded = execute(job, folding, constant(4));
    const ExecutionResult apart = execute(job, unfolded(job), constant(4));
    EXPECT_EQ(folded.stuck, apart.stuck);
    EXPECT_EQ(folded.end, apart.end);
    for (std::size_t r = 0; r < 16; ++r) {
      const RankOutcome& mine = folded.classes[folding.class_of[r]];
      EXPECT_EQ(mine.ended, apart.classes[r].ended);
      EXPECT_EQ(mine.next, apart.classes[r].next);
      EXPECT_EQ(mine.waiting, apart.classes[r].waiting);
    }
    stuck += folded.stuck;
    folded_away += 16 - folded.classes.size();
  }
  EXPECT_GT(stuck, 20U);
  EXPECT_GT(folded_away, 1000U);
}

}  // namespace
}  // namespace lockstep::sim
