// Processes that hang inside the kernel, by its log and by torchrun.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trace/evidence/evidence_testing.h"
#include "trace/evidence/evidence.h"

namespace lockstep::trace {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string kernel_log(const std::string& task, const std::string& frames) {
  return "[ 1234.56] INFO: task " + task +
         " blocked for more than 122 seconds.\n"
         "[ 1234.57]       Tainted: P           OE     5.15.0-1049-aws #54\n"
         "[ 1234.58] \"echo 0 > /proc/sys/kernel/hung_task_timeout_secs\" disables this "
         "message.\n" +
         frames;
}

const std::string kNfsFrames =
    "[ 1234.59] task:pt_main_thread  state:D stack:    0 pid: 4711 tgid: 4700 ppid:  4690\n"
    "[ 1234.60] Call Trace:\n"
    "[ 1234.61]  <TASK>\n"
    "[ 1234.62]  __schedule+0x2cd/0x890\n"
    "[ 1234.63]  ? nfs_guess+0x1/0x2 [nfs]\n"
    "[ 1234.64]  schedule+0x69/0x110\n"
    "[ 1234.65]  rpc_wait_bit_killable+0x1e/0xa0 [sunrpc]\n"
    "[ 1234.66]  nfs4_file_fsync+0x99/0x120 [nfsv4]\n"
    "[ 1234.67]  </TASK>\n";

TEST(BlockedTasks, TheKernelSaysInWhichFunctionTheyWait) {
  EXPECT_EQ(notes_of(rank_log_source(), kernel_log("pt_main_thread:4711", kNfsFrames)),
            "some rank pid 4700 stack @1: blocked in the kernel for more than 122 seconds, in "
            "rpc_wait_bit_killable [sunrpc]")
      << "a thread's number is not its process'";
  EXPECT_EQ(notes_of(rank_log_source(), kernel_log("python3:71", "")),
            "some rank pid 71 stack @1: blocked in the kernel for more than 122 seconds");
}

TEST(BlockedTasks, FunctionsOfAnotherStackAreNotTheirs) {
  const std::string others = "[ 1250.1] CPU: 3 PID: 9 Comm: x\n[ 1250.2]  other+0x1/0x2 [ext4]\n";
  EXPECT_THAT(
      notes_of(rank_log_source(),
               kernel_log("python3:71", "[ 1.2]  schedule+0x1/0x2\n[ 1.3]  </TASK>\n" + others)),
      Not(HasSubstr("ext4")));
  // Of a program, in the same log.
  EXPECT_THAT(notes_of(rank_log_source(),
                       kernel_log("python3:71", "/lib/libc.so.6(+0x29d90)[0x7f12] in main\n")),
              Not(HasSubstr("libc")));
}

TEST(BlockedTasks, TheNodesOwnTasksAreNoRanks) {
  for (const char* const task : {"kworker/u256:2:812", "jbd2/nvme0n1p1-8:812", "sshd:812"})
    EXPECT_EQ(notes_of(rank_log_source(), kernel_log(task, kNfsFrames)), "") << task;
  const std::string mine = "ValueError: task python3 blocked for more than 2 seconds\n";
  EXPECT_THAT(notes_of(rank_log_source(), kLoggedTraceback + mine), Not(HasSubstr("kernel")));
}

TEST(BlockedTasks, SoftLockupsAndTorchrunNameProcesses) {
  EXPECT_EQ(notes_of(rank_log_source(),
                     "node4 kernel: watchdog: BUG: soft lockup - CPU#12 stuck for 23s! "
                     "[python3:4711]\n"
                     "node4 kernel: RIP: 0010:os_io_read_dword+0x8/0x10 [nvidia]\n"),
            "some rank pid 4711 stack @1: busy in the kernel for 23 seconds (soft lockup), in "
            "os_io_read_dword [nvidia]");
  EXPECT_EQ(
      notes_of(rank_log_source(),
               "W1125 12:00:00.1 70 torch/distributed/elastic/agent.py:601] [default] Worker "
               "pid=71 entered uninterruptible sleep (D-state); will mark UNHEALTHY if it "
               "remains for 60.0s.\n"
               "E1125 12:01:03.3 70 torch/distributed/elastic/agent.py:569] [default] Worker "
               "pid=71 stuck in uninterruptible sleep (D-state) for 63.2s (>= 60.0s); marking "
               "worker group UNHEALTHY and disabling restarts.\n"),
      "some rank pid 71 stack @2: blocked in the kernel for 63 seconds");
}

}  // namespace
}  // namespace lockstep::trace
