#include "runtime/study/run_study.h"

#include <gtest/gtest.h>

#include "tests/support/trace_lines.h"
#include "tests/support/trace_text.h"
#include "verify/verify.h"

namespace lockstep::runtime {
namespace {

// Two ranks, two steps, an all-reduce of 10 floats and one of 4 bfloat16 in each, and one at the
// start.
trace::Run small_run() {
  std::vector<std::string> texts;
  for (int r = 0; r < 2; ++r) {
    std::string text =
        header_line(r, 2) + world_line(2) +
        issue_line(0, "world", "broadcast", {{"in", {{1000}}}, {"dtype", {"float32"}}}) +
        event_line("complete", 0);
    int id = 1;
    for (int n = 0; n < 2; ++n) {
      const auto add_call = [&](int elements, const char* type) {
        text +=
            issue_line(id, "world", "all_reduce",
                       {{"redop", "sum"}, {"in", {{elements}}}, {"dtype", {type}}, {"step", n}}) +
            event_line("complete", id);
        ++id;
      };
      add_call(10, "float32");
      add_call(4, "bfloat16");
      text += json_line({{"ev", "step"}, {"n", n}, {"loss", 1.0}});
    }
    texts.push_back(text + end_line("clean"));
  }
  return run_from_text(texts);
}

WorkerOutcome worker(int rank, double ms, double loss, std::int64_t bytes) {
  WorkerOutcome out;
  out.rank = rank;
  out.numbers.emplace();
  out.numbers->step_ms_median = ms;
  out.numbers->last_loss = loss;
  out.numbers->peak_rss_bytes = bytes;
  return out;
}

TEST(RunFigures, AreTheSlowestAndLargestRanks) {
  JobOutcome outcome;
  outcome.run = small_run();
  outcome.workers = {worker(0, 40, 1.5, 1000), worker(1, 50, 2.5, 900)};
  const RunFigures f = figures_of(outcome);
  EXPECT_TRUE(f.completed);
  EXPECT_EQ(f.end, "completed");
  EXPECT_EQ(f.step_ms, 50);
  EXPECT_EQ(f.peak_bytes, 1000);
  EXPECT_EQ(f.loss, 2.0);
  EXPECT_EQ(f.bytes_per_step, 48);  // 10 x 4 and 4 x 2; what precedes the steps does not count
  EXPECT_FALSE(f.recall_at_1);
}

TEST(RunFigures, SayWhatStoppedTheJob) {
  JobOutcome outcome;
  outcome.end = JobEnd::stopped;
  verify::Finding finding;
  finding.rule = verify::RuleId::missing_collective;
  finding.step = 3;
  outcome.report.findings.push_back(finding);
  EXPECT_EQ(figures_of(outcome).end, "missing-collective at step 3");
  outcome.report.findings.clear();
  EXPECT_EQ(figures_of(outcome).end, "failed");
}

TEST(Spread, IsMedianAndRange) {
  const auto s = spread_of({3, 1, 2, 10});
  ASSERT_TRUE(s);
  EXPECT_EQ(s->median, 2.5);
  EXPECT_EQ(s->low, 1);
  EXPECT_EQ(s->high, 10);
  EXPECT_FALSE(spread_of({}));
}

TEST(Combination, IsCompleteWhereAllItsRunsAre) {
  RunFigures good;
  good.completed = true;
  good.step_ms = 10;
  good.recall_at_1 = 0.5;
  RunFigures hung;
  hung.end = "missing-collective at step 3";
  reports::Combination c;
  add_runs({good, good}, c);
  EXPECT_TRUE(c.completed);
  EXPECT_EQ(c.step_ms->median, 10);
  EXPECT_FALSE(c.loss);
  add_runs({good, hung}, c);
  EXPECT_FALSE(c.completed);
  EXPECT_EQ(c.end, "missing-collective at step 3");
}

}  // namespace
}  // namespace lockstep::runtime
