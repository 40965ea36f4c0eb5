#include "sim/forecast/path_summary.h"

#include <gtest/gtest.h>

#include "sim/forecast/training_steps.h"
#include "tests/sim/machine/kernel_job.h"

namespace lockstep::sim {
namespace {

PathSummary summary_of(const KernelJob& job) {
  const MeasuredSteps measured =
      measured_steps(step_times(job.run, job.program, job.folding, job.result));
  return path_summary(critical_path(job.program.job, job.folding, job.result), job.run, job.program,
                      job.folding, job.layouts, measured.begin, measured.end);
}

Picos sum_of(const PathSummary& summary) {
  Picos sum;
  for (const PathItem& item : summary.items) sum += item.time;
  return sum;
}

TEST(PathSummary, EqualPartsOfAllMeasuredStepsAreOne) {
  // Rank 1 comes last in each step; the call takes 2 ms.
  const KernelJob job({{{1, 0, ""}, {1, 0, ""}, {1, 0, ""}}, {{9, 0, ""}, {4, 0, ""}, {5, 0, ""}}});
  const PathSummary summary = summary_of(job);
  EXPECT_EQ(summary.end - summary.begin, ms(13));
  EXPECT_EQ(sum_of(summary), ms(13));
  ASSERT_EQ(summary.items.size(), 2U);
  EXPECT_EQ(summary.items[0].kind, PathPart::Kind::work);
  EXPECT_EQ(job.folding.representatives[summary.items[0].rank_class], 1U);
  EXPECT_EQ(summary.items[0].time, ms(9));
  EXPECT_EQ(summary.items[0].count, 2U);
  ASSERT_TRUE(summary.items[0].call);
  EXPECT_EQ(summary.items[1].kind, PathPart::Kind::call);
  EXPECT_EQ(summary.items[1].time, ms(4));
  EXPECT_FALSE(summary.items[1].between_nodes);
  ASSERT_EQ(summary.calls.size(), 1U);
  EXPECT_EQ(job.run.tables.str(summary.calls[0].group), "world");
  EXPECT_EQ(summary.calls[0].time, ms(4));
  EXPECT_EQ(summary.work[summary.items[0].rank_class], ms(9));
  EXPECT_EQ(summary.launches, Picos{});
}

TEST(PathSummary, WorkThatHidesACallIsOnThePathAndTheCallIsNot) {
  const KernelJob job({{{1, 5, ""}, {1, 5, ""}}, {{1, 5, ""}, {1, 5, ""}}});
  const PathSummary summary = summary_of(job);
  EXPECT_EQ(sum_of(summary), ms(6));
  for (const PathItem& item : summary.items) EXPECT_EQ(item.kind, PathPart::Kind::work);
}

TEST(PathSummary, ShowsLinksBetweenNodes) {
  Machine machine = millisecond_kernels();
  machine.ranks_per_node = 1;
  const KernelJob job({{{1, 0, ""}}, {{1, 0, ""}}}, machine);
  const PathSummary summary = summary_of(job);
  ASSERT_EQ(summary.calls.size(), 1U);
  EXPECT_TRUE(summary.calls[0].between_nodes);
}

}  // namespace
}  // namespace lockstep::sim
