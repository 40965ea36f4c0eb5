// The launcher on real processes that only play at training (fake_worker.cc).
#include "launch/job_runner.h"

#include <gmock/gmock.h>

#include "launch/launch_testing.h"
#include "launch/run_folder.h"

namespace lockstep {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using testing::is_alive;

class JobRunner : public ::testing::Test {
 protected:
  // Runs the piece of that name (fake_worker.cc) with three ranks.
  Result<JobOutcome> run(const std::string& piece, double total_s = 60,
                         const OnProgress& on_progress = {}) {
    const std::string file = folder_.file("piece.yaml");
    std::ofstream(file) << "{lockstep: 1, ranks: 3, name: " << piece
                        << ", limits: {total_s: " << total_s << "}}\n";
    JobOptions options;
    options.worker = LOCKSTEP_BINARY_DIR "/tests/fake_worker";
    options.folder = *make_run_folder(folder_.file("run"), *load_scenario(file), true);
    options.grace = std::chrono::milliseconds(500);
    return run_job(*load_scenario(file), options, interrupts_, on_progress);
  }

  TempDir folder_;
  Interrupts interrupts_;
};

bool any_alive(const Run& run) {
  bool any = false;
  for (const RankTrace& trace : run.ranks) any = any || is_alive(static_cast<pid_t>(trace.pid));
  return any;
}

TEST_F(JobRunner, a_job_that_finishes_is_clean) {
  const auto outcome = run("finish");
  ASSERT_TRUE(outcome) << outcome.error().str();
  EXPECT_EQ(outcome->end, JobEnd::completed);
  EXPECT_EQ(outcome->report.verdict, Verdict::clean);
  ASSERT_EQ(outcome->workers.size(), 3U);
  EXPECT_TRUE(outcome->workers[2].end.success());
  EXPECT_EQ(TempDir::read(outcome->workers[2].log), "rank 2 of 3 plays \"finish\"\n");
  EXPECT_EQ(outcome->run.ranks.size(), 3U);
}

TEST_F(JobRunner, a_job_that_cannot_go_on_is_proven_stuck_and_ended) {
  const auto outcome = run("one rank stops early");
  ASSERT_TRUE(outcome) << outcome.error().str();
  EXPECT_EQ(outcome->end, JobEnd::stopped);
  EXPECT_TRUE(outcome->proof_s);
  EXPECT_TRUE(outcome->workers[0].ended_by_us);
  EXPECT_FALSE(outcome->workers[1].ended_by_us);
  EXPECT_EQ(outcome->report.verdict, Verdict::findings);
  EXPECT_FALSE(any_alive(outcome->run));
}

TEST_F(JobRunner, a_worker_that_dies_without_a_word_leaves_the_others_stuck) {
  const auto outcome = run("one rank aborts");
  ASSERT_TRUE(outcome) << outcome.error().str();
  EXPECT_EQ(outcome->end, JobEnd::stopped);
  EXPECT_EQ(to_string(outcome->workers[1].end), "aborted (SIGABRT)");
  ASSERT_FALSE(outcome->report.findings.empty());
  EXPECT_THAT(outcome->report.findings[0].culprits, Contains(Rank(1)));
  EXPECT_FALSE(any_alive(outcome->run));
}

TEST_F(JobRunner, silence_alone_proves_nothing_and_the_time_limit_ends_it) {
  const auto outcome = run("long computation", /*total_s=*/4);
  ASSERT_TRUE(outcome) << outcome.error().str();
  EXPECT_EQ(outcome->end, JobEnd::timed_out);
  EXPECT_FALSE(outcome->proof_s);
  EXPECT_FALSE(any_alive(outcome->run));
}

TEST_F(JobRunner, workers_that_do_not_listen_are_killed) {
  const auto outcome = run("deaf to SIGTERM", /*total_s=*/4);
  ASSERT_TRUE(outcome) << outcome.error().str();
  EXPECT_EQ(to_string(outcome->workers[0].end), "was killed by SIGKILL");
  EXPECT_FALSE(any_alive(outcome->run));
}

TEST_F(JobRunner, a_worker_that_fails_makes_the_job_failed) {
  const auto outcome = run("one rank fails");
  ASSERT_TRUE(outcome) << outcome.error().str();
  EXPECT_EQ(outcome->end, JobEnd::failed);
  EXPECT_EQ(to_string(outcome->workers[1].end), "exited with status 1");
}

TEST_F(JobRunner, the_users_signal_ends_it_and_keeps_the_traces) {
  const auto outcome = run("long computation", 60, [](const JobProgress& progress, double) {
    if (progress.started == 3) raise(SIGINT);
  });
  ASSERT_TRUE(outcome) << outcome.error().str();
  EXPECT_EQ(outcome->end, JobEnd::interrupted);
  EXPECT_EQ(outcome->interrupted_by, SIGINT);
  EXPECT_EQ(outcome->run.ranks.size(), 3U);
  EXPECT_FALSE(any_alive(outcome->run));
}

TEST_F(JobRunner, progress_counts_what_every_rank_has_finished) {
  JobProgress last;
  const auto outcome = run("long computation", 60, [&](const JobProgress& progress, double) {
    last = progress;
    if (progress.started == 3 && progress.steps == 1) raise(SIGINT);
  });
  ASSERT_TRUE(outcome) << outcome.error().str();
  EXPECT_EQ(last.started, 3);
  EXPECT_EQ(last.steps, 1);
  EXPECT_DOUBLE_EQ(last.loss.value_or(0), 1.0);
}

TEST_F(JobRunner, workers_that_leave_no_trace_are_an_error_that_quotes_their_log) {
  const auto outcome = run("no trace");
  ASSERT_FALSE(outcome);
  EXPECT_THAT(outcome.error().message, HasSubstr("rank 0 exited with status 3"));
  EXPECT_THAT(outcome.error().message, HasSubstr("cannot find the data"));
}

}  // namespace
}  // namespace lockstep
