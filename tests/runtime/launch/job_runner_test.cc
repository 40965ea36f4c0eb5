// The launcher on real processes that only play at training (fake_worker.cc).
#include "runtime/launch/job_runner.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include <gmock/gmock.h>

#include "runtime/launch/run_folder.h"
#include "tests/runtime/launch/launch_testing.h"

namespace lockstep::runtime {
namespace {

using launch_testing::is_alive;
using ::testing::Contains;
using ::testing::HasSubstr;

class JobRunner : public ::testing::Test {
 protected:
  // Runs the piece of that name (fake_worker.cc) with three ranks.
  Result<JobOutcome> run(const std::string& piece, double total_s = 60,
                         const OnProgress& on_progress = {}, const std::string& more = "") {
    const std::string file = folder_.file("piece.yaml");
    std::ofstream(file) << "{lockstep: 1, ranks: 3, name: " << piece
                        << ", limits: {total_s: " << total_s << "}" << more << "}\n";
    JobOptions options;
    options.worker = LOCKSTEP_BINARY_DIR "/tests/fake_worker";
    options.folder = *make_run_folder(folder_.file("run"), *load_scenario(file), true);
    options.grace = std::chrono::milliseconds(500);
    return run_job(*load_scenario(file), options, interrupts_, on_progress);
  }

  TempDir folder_;
  Interrupts interrupts_;
};

bool any_alive(const trace::Run& run) {
  bool any = false;
  for (const trace::RankTrace& trace : run.ranks)
    any = any || launch_testing::is_alive(static_cast<pid_t>(trace.pid));
  return any;
}

void expect_interrupted_on_its_way(const trace::Run& run) {
  for (const trace::RankTrace& trace : run.ranks) {
    EXPECT_EQ(trace.end, trace::End::interrupted);
    EXPECT_TRUE(trace.exceptions.empty());
  }
}

TEST_F(JobRunner, AJobThatFinishesIsClean) {
  const auto outcome = run("finish");
  ASSERT_TRUE(outcome) << outcome.error().str();
  EXPECT_EQ(outcome->end, JobEnd::completed);
  EXPECT_EQ(outcome->report.verdict, verify::Verdict::clean);
  ASSERT_EQ(outcome->workers.size(), 3U);
  EXPECT_TRUE(outcome->workers[2].end.success());
  EXPECT_EQ(TempDir::read(outcome->workers[2].log), "rank 2 of 3 plays \"finish\"\n");
  EXPECT_EQ(outcome->run.ranks.size(), 3U);
}

TEST_F(JobRunner, AJobThatCannotGoOnIsProvenStuckAndEnded) {
  const auto outcome = run("one rank stops early");
  ASSERT_TRUE(outcome) << outcome.error().str();
  EXPECT_EQ(outcome->end, JobEnd::stopped);
  EXPECT_TRUE(outcome->proof_s);
  EXPECT_TRUE(outcome->workers[0].ended_by_us);
  EXPECT_FALSE(outcome->workers[1].ended_by_us);
  EXPECT_EQ(outcome->report.verdict, verify::Verdict::findings);
  EXPECT_FALSE(any_alive(outcome->run));
}

TEST_F(JobRunner, AWorkerThatDiesWithoutAWordLeavesTheOthersStuck) {
  const auto outcome = run("one rank aborts");
  ASSERT_TRUE(outcome) << outcome.error().str();
  EXPECT_EQ(outcome->end, JobEnd::stopped);
  EXPECT_EQ(to_string(outcome->workers[1].end), "aborted (SIGABRT)");
  ASSERT_FALSE(outcome->report.findings.empty());
  EXPECT_THAT(outcome->report.findings[0].culprits, Contains(trace::Rank(1)));
  EXPECT_FALSE(any_alive(outcome->run));
}

// The call could still complete on the others, so nothing is proven; but the job has failed, and
// nothing moves.
TEST_F(JobRunner, AWorkerThatDiesInACallEndsTheJobLongBeforeItsLimit) {
  const auto outcome = run("one rank aborts in a call");
  ASSERT_TRUE(outcome) << outcome.error().str();
  EXPECT_EQ(outcome->end, JobEnd::failed);
  EXPECT_FALSE(outcome->proof_s);
  EXPECT_TRUE(outcome->workers[0].ended_by_us);
  EXPECT_FALSE(outcome->workers[1].ended_by_us);
  EXPECT_LT(outcome->wall_s, 30);
  EXPECT_FALSE(any_alive(outcome->run));
}

TEST_F(JobRunner, SilenceAloneProvesNothingAndTheTimeLimitEndsIt) {
  const auto outcome = run("long computation", /*total_s=*/4);
  ASSERT_TRUE(outcome) << outcome.error().str();
  EXPECT_EQ(outcome->end, JobEnd::timed_out);
  EXPECT_FALSE(outcome->proof_s);
  EXPECT_FALSE(any_alive(outcome->run));
}

TEST_F(JobRunner, WorkersThatDoNotListenAreKilled) {
  const auto outcome = run("deaf to SIGTERM", /*total_s=*/4);
  ASSERT_TRUE(outcome) << outcome.error().str();
  EXPECT_EQ(to_string(outcome->workers[0].end), "was killed by SIGKILL");
  EXPECT_FALSE(any_alive(outcome->run));
}

TEST_F(JobRunner, AWorkerThatFailsMakesTheJobFailed) {
  const auto outcome = run("one rank fails");
  ASSERT_TRUE(outcome) << outcome.error().str();
  EXPECT_EQ(outcome->end, JobEnd::failed);
  EXPECT_EQ(to_string(outcome->workers[1].end), "exited with status 1");
}

TEST_F(JobRunner, TheUsersSignalEndsItAndKeepsTheTraces) {
  const auto outcome = run("long computation", 60, [](const JobProgress& progress, double) {
    if (progress.started == 3) raise(SIGINT);
  });
  ASSERT_TRUE(outcome) << outcome.error().str();
  EXPECT_EQ(outcome->end, JobEnd::interrupted);
  EXPECT_EQ(outcome->interrupted_by, SIGINT);
  EXPECT_EQ(outcome->run.ranks.size(), 3U);
  EXPECT_FALSE(any_alive(outcome->run));
}

// Its ranks would record how the first one's connections close, and one is behind the others.
TEST_F(JobRunner, AHealthyJobThatASignalEndsShowsNothingThatEndingItDid) {
  const auto outcome = run("trains for ever", 60, [](const JobProgress& progress, double) {
    if (progress.steps >= 20) raise(SIGINT);
  });
  ASSERT_TRUE(outcome) << outcome.error().str();
  EXPECT_EQ(outcome->end, JobEnd::interrupted);
  EXPECT_FALSE(outcome->proof_s);
  EXPECT_GE(outcome->steps, 20);
  expect_interrupted_on_its_way(outcome->run);
  EXPECT_FALSE(any_alive(outcome->run));
}

TEST_F(JobRunner, AHealthyJobThatTheTimeLimitEndsShowsNothingThatEndingItDid) {
  const auto outcome = run("trains for ever", /*total_s=*/4);
  ASSERT_TRUE(outcome) << outcome.error().str();
  EXPECT_EQ(outcome->end, JobEnd::timed_out);
  expect_interrupted_on_its_way(outcome->run);
}

// What a proof would have said a moment later is still said.
TEST_F(JobRunner, AJobThatIsStuckWhenASignalEndsItIsProvenStuck) {
  constexpr int kAllRecords = 3 * 5 + 2 * 2;
  int polls = 0;
  const auto outcome = run("one rank stops early", 60, [&](const JobProgress& progress, double) {
    if (progress.records == kAllRecords && ++polls == 2) raise(SIGINT);
  });
  ASSERT_TRUE(outcome) << outcome.error().str();
  EXPECT_EQ(outcome->report.verdict, verify::Verdict::findings);
  EXPECT_TRUE(outcome->proof_s);
}

TEST_F(JobRunner, RanksThatAreStuckBeforeTheyRecordEndByTheTimeLimit) {
  const auto outcome = run("stuck before it records", /*total_s=*/4);
  ASSERT_TRUE(outcome) << outcome.error().str();
  EXPECT_EQ(outcome->end, JobEnd::timed_out);
  EXPECT_EQ(outcome->steps, 0);
  EXPECT_FALSE(any_alive(outcome->run));
}

TEST_F(JobRunner, RanksThatAreStuckBehindTheirEndEndByTheTimeLimit) {
  const auto outcome = run("blocks when all is done", /*total_s=*/4);
  ASSERT_TRUE(outcome) << outcome.error().str();
  EXPECT_EQ(outcome->end, JobEnd::timed_out);
  EXPECT_EQ(outcome->report.verdict, verify::Verdict::clean);
  EXPECT_FALSE(any_alive(outcome->run));
}

TEST_F(JobRunner, LeavesNoSharedMemoryOfItsRanksAndTouchesNoOthers) {
  std::string anothers = "/dev/shm/nccl-another-XXXXXX";
  const int file = mkstemp(anothers.data());
  ASSERT_GE(file, 0);
  const auto outcome = run("leaves shared memory", 60, [&](const JobProgress&, double) {
    int made = 0;
    for (int rank = 0; rank < 3; ++rank) {
      const std::string log = TempDir::read(log_file(folder_.file("run"), rank));
      made += log.find("/dev/shm/nccl-fake-") != std::string::npos ? 1 : 0;
    }
    if (made == 3) raise(SIGINT);
  });
  ASSERT_TRUE(outcome) << outcome.error().str();
  for (const WorkerOutcome& worker : outcome->workers) {
    EXPECT_EQ(to_string(worker.end), "was killed by SIGKILL");
    const std::vector<std::string> segment = last_lines(worker.log, 1);
    ASSERT_EQ(segment.size(), 1U);
    EXPECT_TRUE(segment[0].starts_with("/dev/shm/nccl-fake-")) << segment[0];
    EXPECT_FALSE(std::filesystem::exists(segment[0]));
  }
  EXPECT_TRUE(std::filesystem::exists(anothers));
  close(file);
  unlink(anothers.c_str());
}

TEST_F(JobRunner, WhatARankHasStartedEndsWithIt) {
  const auto outcome = run("leaves a helper");
  ASSERT_TRUE(outcome) << outcome.error().str();
  EXPECT_EQ(outcome->end, JobEnd::completed);
  for (const trace::RankTrace& trace : outcome->run.ranks) {
    const auto group = static_cast<pid_t>(trace.pid);
    EXPECT_TRUE(launch_testing::eventually([&] { return kill(-group, 0) != 0; }));
  }
}

TEST_F(JobRunner, ARankThatRefusesEndsTheJobAtOnceInItsOwnWords) {
  const auto outcome = run("one rank refuses");
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().message, "rank 1: there is no GPU for it");
  EXPECT_EQ(outcome.error().fix, "start fewer");
}

TEST_F(JobRunner, RanksThatShareGpusAreRanksOfDifferentHostsToNccl) {
  const auto outcome = run("says its environment", 60, {}, ", backend: nccl, gpus: shared");
  ASSERT_TRUE(outcome) << outcome.error().str();
  EXPECT_TRUE(outcome->times_mean_nothing);
  const std::string home = std::getenv("HOME") == nullptr ? "(not set)" : std::getenv("HOME");
  EXPECT_THAT(TempDir::read(outcome->workers[2].log),
              HasSubstr("LOCKSTEP_SHARE_GPUS=1\nNCCL_HOSTID=lockstep-rank-2\n"
                        "NCCL_SOCKET_IFNAME=lo\nNCCL_NET=Socket\nNCCL_P2P_DISABLE=1\n"
                        "NCCL_SHM_DISABLE=1\nHOME=" +
                        home));
}

TEST_F(JobRunner, RanksWithGpusOfTheirOwnGetNoneOfIt) {
  const auto outcome = run("says its environment", 60, {}, ", backend: nccl");
  ASSERT_TRUE(outcome) << outcome.error().str();
  EXPECT_FALSE(outcome->times_mean_nothing);
  EXPECT_THAT(TempDir::read(outcome->workers[0].log), HasSubstr("NCCL_HOSTID=(not set)"));
}

TEST(CheckStartable, NcclNeedsGpusAndOneForEachRankUnlessTheyShare) {
  Scenario scenario;
  scenario.ranks = 4;
  EXPECT_TRUE(check_startable(scenario, 0));  // on gloo
  scenario.backend = Scenario::Backend::nccl;
  EXPECT_TRUE(check_startable(scenario, 4));
  EXPECT_TRUE(check_startable(scenario, std::nullopt));
  const Status none = check_startable(scenario, 0);
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("this machine has no GPU"));
  const Status few = check_startable(scenario, 1);
  ASSERT_FALSE(few);
  EXPECT_THAT(few.error().message,
              HasSubstr("4 ranks of NCCL need a GPU each, and this machine has 1 GPU"));
  EXPECT_THAT(few.error().fix, HasSubstr("--share-gpus"));
  scenario.share_gpus = true;
  EXPECT_TRUE(check_startable(scenario, 1));
  EXPECT_FALSE(check_startable(scenario, 0));
}

TEST(CheckStartable, TheFilesThatItNamesAreThere) {
  const TempDir folder;
  Scenario scenario;
  scenario.file = "job.yaml";
  scenario.data.manifest = {folder.path()};
  EXPECT_TRUE(check_startable(scenario, 0));
  // The data set expands it, and looks for each.
  scenario.data.manifest.push_back(folder.path() + "/train-{000..007}.tar");
  EXPECT_TRUE(check_startable(scenario, 0));
  scenario.model.weights.text = folder.path() + "/nowhere.safetensors";
  const Status none = check_startable(scenario, 0);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().location.str(), "job.yaml");
  EXPECT_THAT(none.error().message, HasSubstr("nowhere.safetensors, and there is no such file"));
}

TEST_F(JobRunner, ProgressCountsWhatEveryRankHasFinished) {
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

TEST_F(JobRunner, WorkersThatLeaveNoTraceAreAnErrorThatQuotesTheirLog) {
  const auto outcome = run("no trace");
  ASSERT_FALSE(outcome);
  EXPECT_THAT(outcome.error().message, HasSubstr("exited with status 3 before it began"));
  EXPECT_THAT(outcome.error().message, HasSubstr("cannot find the data"));
}

}  // namespace
}  // namespace lockstep::runtime
