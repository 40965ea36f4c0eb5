#include "runtime/launch/process.h"

#include <sys/wait.h>

#include "base/interrupts.h"
#include "tests/runtime/launch/launch_testing.h"

namespace lockstep::runtime {
namespace {

using launch_testing::eventually;
using launch_testing::is_alive;

Process shell(const std::string& script, const std::string& output = "/dev/null") {
  Result<Process> process = Process::spawn({"/bin/sh", "-c", script}, output);
  EXPECT_TRUE(process);
  return std::move(*process);
}

ProcessEnd end_of(Process& process) {
  EXPECT_TRUE(launch_testing::eventually([&] { return !process.running(); }));
  return *process.poll();
}

TEST(Process, ItsExitStatusIsKnown) {
  Process good = shell("exit 0");
  EXPECT_TRUE(end_of(good).success());
  Process bad = shell("exit 7");
  EXPECT_EQ(to_string(end_of(bad)), "exited with status 7");
}

TEST(Process, TheSignalThatKilledItIsKnown) {
  Process killed = shell("kill -KILL $$");
  EXPECT_EQ(to_string(end_of(killed)), "was killed by SIGKILL");
  Process aborted = shell("kill -ABRT $$");
  EXPECT_EQ(to_string(end_of(aborted)), "aborted (SIGABRT)");
}

TEST(Process, BothItsOutputsGoToTheFile) {
  const TempDir folder;
  Process process = shell("echo out; echo err >&2", folder.file("log"));
  end_of(process);
  EXPECT_EQ(TempDir::read(folder.file("log")), "out\nerr\n");
}

TEST(Process, AProgramThatIsNotThereIsAnError) {
  const Result<Process> process = Process::spawn({"/nowhere/worker"}, "/dev/null");
  ASSERT_FALSE(process);
  EXPECT_EQ(process.error().message, "cannot start /nowhere/worker: No such file or directory");
  EXPECT_FALSE(Process::spawn({"/bin/true"}, "/nowhere/log"));
}

TEST(Process, IsKilledAndReapedWithItsChildrenWhenItsObjectGoes) {
  const TempDir folder;
  pid_t helper = 0;
  pid_t pid = 0;
  {
    Process process = shell("sleep 1000 & echo $!; wait", folder.file("log"));
    pid = process.pid();
    ASSERT_TRUE(
        launch_testing::eventually([&] { return !TempDir::read(folder.file("log")).empty(); }));
    helper = std::stoi(TempDir::read(folder.file("log")));
    EXPECT_TRUE(launch_testing::is_alive(pid));
    EXPECT_TRUE(launch_testing::is_alive(helper));
  }
  EXPECT_FALSE(launch_testing::is_alive(pid));
  EXPECT_TRUE(launch_testing::eventually([&] { return !launch_testing::is_alive(helper); }));
}

TEST(Process, DoesNotOutliveAParentThatIsKilled) {
  const TempDir folder;
  const pid_t parent = fork();
  if (parent == 0) {
    const Result<Process> child =
        Process::spawn({"/bin/sh", "-c", "echo $$; exec sleep 1000"}, folder.file("log"));
    while (true) pause();
  }
  ASSERT_TRUE(
      launch_testing::eventually([&] { return !TempDir::read(folder.file("log")).empty(); }));
  const pid_t child = std::stoi(TempDir::read(folder.file("log")));
  EXPECT_TRUE(launch_testing::is_alive(child));
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  EXPECT_TRUE(launch_testing::eventually([&] { return !launch_testing::is_alive(child); }));
}

TEST(Process, ThePoliteLeaveOnSigtermAndTheDeafAreKilled) {
  const TempDir folder;
  std::vector<Process> processes;
  processes.push_back(
      shell("trap 'exit 9' TERM; echo; while :; do sleep 0.01; done", folder.file("polite")));
  processes.push_back(
      shell("trap '' TERM; echo; while :; do sleep 0.01; done", folder.file("deaf")));
  ASSERT_TRUE(launch_testing::eventually([&] {
    return !TempDir::read(folder.file("polite")).empty() &&
           !TempDir::read(folder.file("deaf")).empty();
  }));
  end_all(processes, std::chrono::milliseconds(1000));
  EXPECT_EQ(to_string(*processes[0].poll()), "exited with status 9");
  EXPECT_EQ(to_string(*processes[1].poll()), "was killed by SIGKILL");
}

TEST(Process, WhatItLeftBehindEndsWithItWhereAskedFor) {
  const TempDir folder;
  Result<Process> process =
      Process::spawn({"/bin/sh", "-c", "sleep 1000 & echo $!"}, folder.file("log"),
                     {.environment = {}, .helpers_end_with_it = true});
  ASSERT_TRUE(process);
  EXPECT_TRUE(end_of(*process).success());
  const pid_t helper = std::stoi(TempDir::read(folder.file("log")));
  EXPECT_TRUE(launch_testing::eventually([&] { return !launch_testing::is_alive(helper); }));
}

TEST(Process, ItsEnvironmentIsOursButForWhatIsGiven) {
  const TempDir folder;
  setenv("LOCKSTEP_TEST_KEPT", "kept", 1);
  setenv("LOCKSTEP_TEST_OURS", "ours", 1);
  Result<Process> process = Process::spawn(
      {"/bin/sh", "-c", "echo $LOCKSTEP_TEST_KEPT $LOCKSTEP_TEST_OURS $LOCKSTEP_TEST_NEW"},
      folder.file("log"),
      {.environment = {{"LOCKSTEP_TEST_OURS", "its own"}, {"LOCKSTEP_TEST_NEW", "new"}}});
  ASSERT_TRUE(process);
  end_of(*process);
  EXPECT_EQ(TempDir::read(folder.file("log")), "kept its own new\n");
}

TEST(Process, StandsStillWhenItIsStoppedAndCanBeKilledSo) {
  const TempDir folder;
  std::vector<Process> processes;
  processes.push_back(shell("while :; do echo; sleep 0.01; done", folder.file("log")));
  processes.push_back(shell("exit 0"));
  ASSERT_TRUE(launch_testing::eventually(
      [&] { return !TempDir::read(folder.file("log")).empty() && !processes[1].running(); }));
  stop_all(processes, std::chrono::seconds(20));
  EXPECT_TRUE(processes[0].running());
  EXPECT_TRUE(processes[0].stopped());
  kill_all(processes);
  EXPECT_EQ(to_string(*processes[0].poll()), "was killed by SIGKILL");
  EXPECT_TRUE(processes[1].poll()->success());
}

TEST(Process, StartsWithNoSignalBlockedEvenWhileInterruptsAreHeld) {
  Interrupts interrupts;
  Process process = shell("kill -INT $$; sleep 1000");
  EXPECT_EQ(to_string(end_of(process)), "was killed by SIGINT");
}

TEST(Interrupts, TellTheFirstSignalThatCame) {
  Interrupts interrupts;
  EXPECT_EQ(interrupts.poll(), 0);
  raise(SIGTERM);
  EXPECT_EQ(interrupts.poll(), SIGTERM);
  raise(SIGINT);
  EXPECT_EQ(interrupts.poll(), SIGTERM);
}

}  // namespace
}  // namespace lockstep::runtime
