// Ranks as lockstep-worker processes that a test starts itself, as a user does who launches a job
// by other means than `lockstep run`.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/launch/process.h"
#include "tests/support/temp_dir.h"
#include "trace/run.h"
#include "verify/report.h"

namespace lockstep::runtime {

// Two ranks that train a small model.
struct JobFile {
  std::string strategy = "ddp";
  int steps = 3;
  double hang_after_s = 60;
  double total_s = 120;

  std::string text() const;
};
inline constexpr int kStepsWithoutEnd = 1000000;

// A TCP port of this machine that was free a moment ago.
int free_port();

// The program's path, from PATH; empty: there is none.
std::string program_named(const std::string& name);

// A job of two ranks in a folder of its own, from whose environment every launcher's variables were
// taken: what a rank is told, the test tells it.
class RealRanks : public ::testing::Test {
 protected:
  RealRanks();

  // Writes job.yaml.
  void write_job(const JobFile& job) { folder_.write("job.yaml", job.text()); }

  // The lockstep-worker that is tested.
  static std::string program();

  // `before`, then "lockstep-worker train job.yaml --trace …", then `after`. Its output goes to
  // `name`.log.
  Process start(const std::string& name, const std::vector<std::string>& before,
                const std::vector<std::string>& after = {});
  // Ranks 0 and 1 as `torchrun` starts them, by variables alone; `before` comes before env(1).
  Process start_as_torchrun(int rank, const std::string& host, int port,
                            const std::vector<std::string>& before = {});

  // Waits (up to a generous bound) until the process has ended.
  static ProcessEnd end_of(Process& process);
  // Waits until both ranks have finished so many steps.
  bool both_train(std::int64_t steps = 2) const;
  // By rank, as the traces tell them.
  std::map<int, pid_t> pids() const;

  std::string log(const std::string& name) const {
    return TempDir::read(folder_.file(name + ".log"));
  }
  std::string traces() const { return folder_.file("traces"); }
  // What both ranks left, and what `lockstep verify` says of it.
  trace::Run recorded() const;

  TempDir folder_;
};

}  // namespace lockstep::runtime
