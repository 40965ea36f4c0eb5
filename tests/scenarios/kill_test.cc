// What happens to a real job when a worker, or the launcher, is killed.
#include <algorithm>
#include <map>

#include <gmock/gmock.h>

#include "runtime/launch/job_runner.h"
#include "runtime/launch/run_folder.h"
#include "tests/runtime/launch/launch_testing.h"
#include "trace/load.h"
#include "verify/verify.h"

namespace lockstep {
namespace {

using runtime::launch_testing::eventually;
using runtime::launch_testing::is_alive;
using ::testing::Contains;

// A job that would go on for hours.
constexpr const char* kLongJob = R"(
lockstep: 1
name: long
ranks: 3
data: {modality: [{has: [image, text]}]}
strategy: manual
train: {steps: 100000}
limits: {hang_after_s: 60, total_s: 120}
)";

class Kill : public ::testing::Test {
 protected:
  Kill() { std::ofstream(folder_.file("long.yaml")) << kLongJob; }

  // Starts `lockstep run` on the long job and waits until every rank trains.
  runtime::Process start_launcher() {
    Result<runtime::Process> launcher = runtime::Process::spawn(
        {LOCKSTEP_PROGRAM, "run", folder_.file("long.yaml"), "--output-dir", runs()},
        folder_.file("launcher.log"));
    EXPECT_TRUE(launcher);
    EXPECT_TRUE(runtime::launch_testing::eventually([&] {
      return workers().size() == 3 && steps() >= 2;
    })) << TempDir::read(folder_.file("launcher.log"));
    return std::move(*launcher);
  }

  std::string runs() const { return folder_.file("run"); }

  // Process ids by rank, as the ring files tell them.
  std::map<int, pid_t> workers() const {
    std::map<int, pid_t> out;
    for (int rank = 0; rank < 3; ++rank) {
      const Result<trace::RingTail> tail = trace::RingTail::open(runtime::ring_file(runs(), rank));
      if (tail) out[rank] = static_cast<pid_t>(tail->pid());
    }
    return out;
  }

  std::int64_t steps() const {
    std::int64_t fewest = INT64_MAX;
    for (int rank = 0; rank < 3; ++rank) {
      Result<trace::RingTail> tail = trace::RingTail::open(runtime::ring_file(runs(), rank));
      fewest = std::min(fewest, tail ? tail->poll().steps : 0);
    }
    return fewest;
  }

  static bool any_alive(const std::map<int, pid_t>& workers) {
    return std::any_of(workers.begin(), workers.end(), [](const auto& worker) {
      return runtime::launch_testing::is_alive(worker.second);
    });
  }

  TempDir folder_;
};

// How a worker may die, and what is said of it.
struct Death {
  int signal;
  int rank;
  const char* words;
};

class KilledWorker : public Kill, public ::testing::WithParamInterface<Death> {};

TEST_P(KilledWorker, EndsTheJobIsNamedAndLeavesReadableTraces) {
  const Death death = GetParam();
  runtime::Process launcher = start_launcher();
  kill(workers().at(death.rank), death.signal);
  ASSERT_TRUE(runtime::launch_testing::eventually([&] { return !launcher.running(); }));
  EXPECT_EQ(launcher.poll()->exit_status, 1);
  EXPECT_THAT(TempDir::read(folder_.file("launcher.log")), ::testing::HasSubstr(death.words));

  const Result<trace::Run> run = trace::load_run({runs()});
  ASSERT_TRUE(run);
  ASSERT_EQ(run->ranks.size(), 3U);
  for (const trace::RankTrace& trace : run->ranks) EXPECT_GE(trace.steps.size(), 2U);
  const verify::Report report = verify::verify(*run);
  ASSERT_EQ(report.verdict, verify::Verdict::findings);
  EXPECT_THAT(report.findings.front().culprits, ::testing::ElementsAre(trace::Rank(death.rank)));
  // Of the others at least one waited for it. Which do at that moment is the scheduler's choice.
  EXPECT_GE(report.findings.front().ranks.size(), 2U);
  EXPECT_THAT(report.findings.front().ranks, Contains(trace::Rank(death.rank)));
}

INSTANTIATE_TEST_SUITE_P(Signals, KilledWorker,
                         ::testing::Values(Death{SIGKILL, 1, "rank 1 was killed by SIGKILL"},
                                           Death{SIGABRT, 0, "rank 0 aborted (SIGABRT)"}));

TEST_F(Kill, CtrlCLeavesNoWorkerAndKeepsTheTraces) {
  runtime::Process launcher = start_launcher();
  const std::map<int, pid_t> pids = workers();
  kill(launcher.pid(), SIGINT);
  ASSERT_TRUE(runtime::launch_testing::eventually([&] { return !launcher.running(); }));
  EXPECT_EQ(launcher.poll()->exit_status, 130);
  EXPECT_FALSE(any_alive(pids));
  const Result<trace::Run> run = trace::load_run({runs()});
  ASSERT_TRUE(run);
  EXPECT_EQ(run->ranks.size(), 3U);
  for (const trace::RankTrace& trace : run->ranks) {
    EXPECT_EQ(trace.end, trace::End::interrupted);
    EXPECT_TRUE(trace.exceptions.empty());
  }
  const verify::Report report = verify::verify(*run);
  EXPECT_EQ(report.verdict, verify::Verdict::inconclusive);
  EXPECT_TRUE(report.findings.empty()) << report.findings[0].message;
  EXPECT_THAT(report.unknown, Contains(::testing::HasSubstr("the job was interrupted in step")));
  const std::string said = TempDir::read(folder_.file("launcher.log"));
  EXPECT_THAT(said, ::testing::ContainsRegex("interrupted at step [0-9]+ of 100000, after "));
  EXPECT_THAT(said, ::testing::HasSubstr("nothing was found wrong until then"));
}

TEST_F(Kill, AKilledLauncherLeavesNoWorker) {
  runtime::Process launcher = start_launcher();
  const std::map<int, pid_t> pids = workers();
  kill(launcher.pid(), SIGKILL);
  ASSERT_TRUE(runtime::launch_testing::eventually([&] { return !launcher.running(); }));
  EXPECT_TRUE(runtime::launch_testing::eventually([&] { return !any_alive(pids); }));
}

}  // namespace
}  // namespace lockstep
