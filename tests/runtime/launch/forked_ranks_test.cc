// Processes that another one forked, and left to us.
#include "runtime/launch/forked_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/launch/launch_testing.h"

namespace lockstep::runtime {
namespace {

using ::testing::HasSubstr;

class ForkedRanks : public ::testing::Test {
 protected:
  // Runs a shell to its end in a Subreaper's time.
  void fork_by(const std::string& script) {
    const Subreaper parent_of_the_ranks;
    Result<Process> forker = Process::spawn({"/bin/sh", "-c", script}, folder_.file("log"));
    ASSERT_TRUE(forker);
    ASSERT_TRUE(launch_testing::eventually([&] { return !forker->running(); }));
  }
  TempDir folder_;
};

TEST_F(ForkedRanks, AreProcessesLikeThoseThatWeStart) {
  fork_by("exec 2>&1; (sleep 0.1; exit 7) & echo $! > " + folder_.file("pids") +
          "; sleep 1000 & echo $! >> " + folder_.file("pids"));
  Result<std::vector<Process>> ranks = take_forked_ranks(folder_.file("pids"), 2);
  ASSERT_TRUE(ranks) << ranks.error().str();
  EXPECT_FALSE(std::filesystem::exists(folder_.file("pids")));
  ASSERT_TRUE(launch_testing::eventually([&] { return !(*ranks)[0].running(); }));
  EXPECT_EQ(to_string(*(*ranks)[0].poll()), "exited with status 7");
  EXPECT_TRUE((*ranks)[1].running());
  kill_all(*ranks);
  EXPECT_EQ(to_string(*(*ranks)[1].poll()), "was killed by SIGKILL");
}

TEST_F(ForkedRanks, MustAllBeThere) {
  EXPECT_FALSE(take_forked_ranks(folder_.file("absent"), 2));
  fork_by("sleep 1000 & echo $! > " + folder_.file("pids"));
  const Result<std::vector<Process>> ranks = take_forked_ranks(folder_.file("pids"), 2);
  ASSERT_FALSE(ranks);
  EXPECT_THAT(ranks.error().message, HasSubstr("not the process ids of 2 ranks"));
  const std::string text = TempDir::read(folder_.file("pids"));
  EXPECT_TRUE(launch_testing::eventually([&] {
    return !launch_testing::is_alive(static_cast<pid_t>(std::stoi(text)));
  })) << "what was taken over is not left behind";
}

}  // namespace
}  // namespace lockstep::runtime
