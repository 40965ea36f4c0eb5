#include "sim/forecast/what_if.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/machine/kernel_job.h"

namespace lockstep::sim {
namespace {

using testing::DoubleNear;

std::map<std::string, WhatIf> all(const KernelJob& job) {
  const auto answers = what_ifs(job.run, job.program, job.costs, job.samples, job.machine);
  EXPECT_TRUE(answers);
  EXPECT_TRUE(std::is_sorted(answers->begin(), answers->end(),
                             [](const WhatIf& a, const WhatIf& b) { return a.gain > b.gain; }));
  std::map<std::string, WhatIf> out;
  for (const WhatIf& one : *answers) out[one.key] = one;
  return out;
}

TEST(WhatIf, OfOneRankThatComputesOnlyItsDeviceMatters) {
  const KernelJob job({{{4, 0, ""}, {4, 0, ""}}});
  auto answers = all(job);
  EXPECT_EQ(answers.at("launches").step_time, ms(2));
  EXPECT_DOUBLE_EQ(answers.at("launches").gain, 0.5);
  EXPECT_DOUBLE_EQ(answers.at("products").gain, 0);
  EXPECT_EQ(answers.count("links"), 0U);
  EXPECT_EQ(answers.count("calls"), 0U);
  EXPECT_EQ(answers.count("even_work"), 0U);
}

TEST(WhatIf, LatencyIsHalvedAndCallsLeftOut) {
  // 3 ms of work, and 2 hops of 1 ms each.
  auto answers = all(KernelJob({{{3, 0, ""}, {3, 0, ""}}, {{3, 0, ""}, {3, 0, ""}}}));
  EXPECT_EQ(answers.at("latency").step_time, ms(4));
  EXPECT_EQ(answers.at("calls").step_time, ms(3));
  EXPECT_THAT(answers.at("calls").gain, DoubleNear(0.4, 1e-12));
  EXPECT_EQ(answers.at("launches").step_time, ms(3.5));
  EXPECT_EQ(answers.count("even_work"), 0U) << "all ranks work alike";
}

TEST(WhatIf, WhatBecomesCriticalInsteadIsInTheAnswer) {
  // The call of 2 ms is hidden by 5 ms of work: no link helps, and half the work leaves 2.5 ms.
  auto answers = all(KernelJob({{{0, 5, ""}, {0, 5, ""}}, {{0, 5, ""}, {0, 5, ""}}}));
  EXPECT_DOUBLE_EQ(answers.at("calls").gain, 0);
  EXPECT_EQ(answers.at("launches").step_time, ms(2.5));
  auto shorter = all(KernelJob({{{0, 3, ""}, {0, 3, ""}}, {{0, 3, ""}, {0, 3, ""}}}));
  EXPECT_EQ(shorter.at("launches").step_time, ms(2)) << "then the call is what a step takes";
}

TEST(WhatIf, EvenWorkIsAsMuchWork) {
  // 1 and 5 ms: 3 each.
  auto answers = all(KernelJob({{{1, 0, ""}, {1, 0, ""}}, {{5, 0, ""}, {5, 0, ""}}}));
  EXPECT_EQ(answers.at("even_work").step_time, ms(5));
  // Four ranks, of which three are alike: (3 · 2 + 6) / 4.
  const std::vector<KernelStep> light(2, {2, 0, ""}), heavy(2, {6, 0, ""});
  auto folded = all(KernelJob({light, heavy, light, light}));
  EXPECT_EQ(folded.at("even_work").step_time, ms(3 + 6));
}

TEST(WhatIf, TheSavingOfCheckpointsIsNoPartOfAStep) {
  const KernelJob alone({{{4, 0, "", 6}, {4, 0, "", 6}, {4, 0, "", 6}}});
  EXPECT_EQ(all(alone).at("launches").step_time, ms(2));
  const std::vector<KernelStep> saves(3, {4, 0, "", 6}), others(3, {2, 0, ""});
  EXPECT_EQ(all(KernelJob({saves, others})).at("even_work").step_time, ms(3 + 2));
}

// A span that only names a remedy is no segment of work: each change is that of the same job
// without it, and nothing of a checkpoint before it is taken for the step's.
TEST(WhatIf, WhatARemedyComputesIsCountedOnce) {
  for (const std::optional<std::int64_t> saving : {std::optional<std::int64_t>{}, {6}}) {
    std::vector<KernelStep> plain(3, {4, 2, "", saving}), dummy = plain;
    for (KernelStep& step : dummy) step.remedy = true;
    const KernelJob as_named({plain, dummy}), unnamed({plain, plain});
    EXPECT_EQ(as_named.result.end, unnamed.result.end);
    const auto answers = all(as_named), same = all(unnamed);
    ASSERT_EQ(answers.size(), same.size());
    for (const auto& [key, one] : same) {
      EXPECT_EQ(answers.at(key).step_time, one.step_time) << key;
      EXPECT_GE(answers.at(key).gain, 0) << key;
    }
  }
}

TEST(WhatIf, LevelsOfLinksAreDistinguished) {
  Machine machine = millisecond_kernels();
  machine.ranks_per_node = 2;
  machine.links.push_back({Picos{}, Bandwidth{8'000'000}, std::nullopt});
  auto inside = all(KernelJob({{{1, 0, ""}, {1, 0, ""}}, {{1, 0, ""}, {1, 0, ""}}}, machine));
  EXPECT_EQ(inside.count("links_inside"), 1U);
  EXPECT_EQ(inside.count("links_between"), 0U);
  const std::vector<KernelStep> steps(2, {1, 0, ""});
  auto between = all(KernelJob({steps, steps, steps, steps}, machine));
  EXPECT_EQ(between.count("links_between"), 1U);
}

// Ranks whose work takes as long for different reasons are not alike on another machine.
TEST(WhatIf, EquallySlowRanksAreDistinguished) {
  KernelJob job({{{2, 0, ""}, {2, 0, ""}}, {{2, 0, ""}, {2, 0, ""}}});
  for (trace::WorkCost& work : job.owned[1].work) {
    work.memory_bytes = 1e6 * static_cast<double>(work.kernels);  // at 1 GB/s
    work.kernels = 0;
  }
  ASSERT_EQ(job.program.job.programs.size(), 1U);
  auto answers = all(job);
  EXPECT_EQ(answers.at("launches").step_time, ms(4)) << "rank 1 still takes 2 ms";
  EXPECT_EQ(answers.at("memory").step_time, ms(4)) << "and rank 0 on the other";
}

TEST(WhatIf, ACoreForEachRankEndsTakingTurns) {
  Machine machine = millisecond_kernels();
  machine.cores = 1;
  const KernelJob job({{{1, 0, ""}, {1, 0, ""}}, {{1, 0, ""}, {1, 0, ""}}}, machine);
  auto answers = all(job);
  // 1 ms of work and 2 of the call; in turn it takes longer.
  EXPECT_EQ(answers.at("cores").step_time, ms(3));
  EXPECT_DOUBLE_EQ(answers.at("cores").gain, 1 - 3e-3 / job.forecast().step_time.seconds());
  EXPECT_GT(answers.at("cores").gain, 0.2);
}

}  // namespace
}  // namespace lockstep::sim
