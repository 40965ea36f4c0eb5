// How `lockstep run` starts its workers: forked from one, or each by itself.
#include <unistd.h>

#include <fstream>
#include <map>
#include <set>
#include <string>

#include <gmock/gmock.h>

#include "runtime/launch/run_folder.h"
#include "tests/scenarios/program_test.h"
#include "trace/formats/ring/reader.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kJob = R"(
lockstep: 1
name: short
ranks: 3
data: {modality: [{has: [image, text]}]}
strategy: manual
train: {steps: 2, batch_size: 2}
limits: {hang_after_s: 60, total_s: 120}
)";

class StartedRanks : public ProgramTest {
 protected:
  StartedRanks() {
    unsetenv("LOCKSTEP_WORKER");
    folder_.write("job.yaml", kJob);
  }
  ~StartedRanks() override { unsetenv("LOCKSTEP_WORKER"); }
  StartedRanks(const StartedRanks&) = delete;
  StartedRanks& operator=(const StartedRanks&) = delete;

  std::string runs() const { return folder_.file("run"); }
  int run_job() { return lockstep({"run", folder_.file("job.yaml"), "--output-dir", runs()}); }

  // A program in place of lockstep-worker.
  std::string worker(const std::string& folder, const std::string& script) const {
    std::filesystem::create_directory(folder_.file(folder));
    std::string path = folder_.write(folder + "/lockstep-worker", "#!/bin/sh\n" + script + "\n");
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
  }
  static std::string own_worker() { return LOCKSTEP_PROGRAM_FOLDER "/lockstep-worker"; }
};

// What /proc says of a process: "Name", from its line in `status`.
std::string status_of(pid_t pid, const std::string& key) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key + ":"))
      return line.substr(line.find_first_not_of("\t ", key.size() + 1));
  }
  return {};
}

TEST_F(StartedRanks, AreForkedAndAsIfStartedOneByOne) {
  folder_.write("long.yaml", R"(
lockstep: 1
name: long
ranks: 3
data: {modality: [{has: [image, text]}]}
strategy: manual
train: {steps: 100000}
limits: {hang_after_s: 60, total_s: 120}
)");
  Result<runtime::Process> launcher = runtime::Process::spawn(
      {LOCKSTEP_PROGRAM, "run", folder_.file("long.yaml"), "--output-dir", runs()},
      folder_.file("log"));
  ASSERT_TRUE(launcher);
  std::map<int, pid_t> pids;
  ASSERT_TRUE(runtime::launch_testing::eventually([&] {
    for (int rank = 0; rank < 3; ++rank) {
      const auto tail = trace::RingTail::open(runtime::ring_file(runs(), rank));
      if (tail) pids[rank] = static_cast<pid_t>(tail->pid());
    }
    return pids.size() == 3;
  })) << log();
  std::set<std::string> layouts;
  for (const auto& [rank, pid] : pids) {
    std::string first;
    std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/maps"), first);
    layouts.insert(first);
    EXPECT_EQ(status_of(pid, "PPid"), std::to_string(launcher->pid()));
    EXPECT_EQ(getpgid(pid), pid);
    const std::string process = "/proc/" + std::to_string(pid);
    EXPECT_EQ(std::filesystem::read_symlink(process + "/fd/0"), "/dev/null");
    for (const char* output : {"/fd/1", "/fd/2"}) {
      EXPECT_EQ(std::filesystem::read_symlink(process + output), runtime::log_file(runs(), rank));
    }
    std::string words = TempDir::read(process + "/cmdline");
    std::erase(words, '\0');
    EXPECT_THAT(words, AllOf(HasSubstr("--rank" + std::to_string(rank) + "--world-size3"),
                             Not(HasSubstr("fork"))));
  }
  EXPECT_EQ(layouts.size(), 1U) << "each was loaded for itself, to an address of its own";
  EXPECT_FALSE(std::filesystem::exists(runs() + "/pids"));
}

TEST_F(StartedRanks, AreStartedOneByOneByAWorkerThatTheUserNames) {
  setenv("LOCKSTEP_WORKER",
         worker("around",
                "echo \"$@\" >> " + folder_.file("calls") + "\nexec " + own_worker() + " \"$@\"")
             .c_str(),
         1);
  EXPECT_EQ(run_job(), 0) << log();
  const std::string calls = TempDir::read(folder_.file("calls"));
  for (const char* rank : {"--rank 0 ", "--rank 1 ", "--rank 2 "})
    EXPECT_THAT(calls, HasSubstr(rank));
}

// The worker lies beside the program, as where both are installed.
TEST_F(StartedRanks, AWorkerThatCannotStartIsReportedByItsWords) {
  worker("installed", "echo cannot load libtorch_cpu.so >&2\nexit 127");
  std::filesystem::copy_file(LOCKSTEP_PROGRAM, folder_.file("installed/lockstep"));
  Result<runtime::Process> program = runtime::Process::spawn(
      {folder_.file("installed/lockstep"), "run", folder_.file("job.yaml"), "--output-dir", runs()},
      folder_.file("log"));
  ASSERT_TRUE(program);
  ASSERT_TRUE(runtime::launch_testing::eventually([&] { return !program->running(); }));
  EXPECT_FALSE(program->poll()->success());
  EXPECT_THAT(log(), AllOf(HasSubstr("rank 0 exited with status 127 before it began"),
                           HasSubstr("cannot load libtorch_cpu.so")));
}

}  // namespace
}  // namespace lockstep
