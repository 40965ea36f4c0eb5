#include "runtime/worker/machine.h"

#include <sched.h>

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::runtime {
namespace {

using ::testing::HasSubstr;

// In the words of torch 2.11, CUDA 13 and NCCL 2.28.
TEST(KnownFailures, AreExplainedInOneSentenceWithAFix) {
  struct Case {
    const char* text;
    const char* message;
    const char* fix;
  };
  for (const Case& c : {
           Case{"CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of "
                "79.10 "
                "GiB of which 12.56 MiB is free.",
                "not enough memory", "batch_size"},
           Case{"CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported",
                "not enough memory", "batch_size"},
           Case{"CUDA driver version is insufficient for CUDA runtime version", "too old",
                "newer driver"},
           Case{"The NVIDIA driver on your system is too old (found version 11040).", "too old",
                "newer driver"},
           Case{"Found no NVIDIA driver on your system.", "no driver", "backend: gloo"},
           Case{"No CUDA GPUs are available", "no GPU", "CUDA_VISIBLE_DEVICES"},
           Case{"CUDA driver initialization failed, you might not have a CUDA gpu.",
                "does not start", "nvidia-smi"},
           Case{"CUDA error: no CUDA-capable device is detected", "no GPU", "CUDA_VISIBLE_DEVICES"},
           Case{"CUDA error: no kernel image is available for execution on the device",
                "not built for this kind of GPU", "compute capability"},
           Case{"NCCL error in: ProcessGroupNCCL.cpp:3690, internal error - please report this "
                "issue\nLast error:\nBootstrap : no socket interface found",
                "no network interface", "NCCL_SOCKET_IFNAME"},
           Case{"ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nLast "
                "error:\nDuplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000",
                "the same GPU", "--share-gpus"},
       }) {
    const auto known = known_failure(c.text);
    ASSERT_TRUE(known) << c.text;
    EXPECT_THAT(known->message, HasSubstr(c.message));
    EXPECT_THAT(known->fix, HasSubstr(c.fix));
  }
}

TEST(KnownFailures, OtherMessagesAreShownAsTheyAre) {
  EXPECT_FALSE(known_failure(""));
  EXPECT_FALSE(known_failure("Connection closed by peer [127.0.0.1]:4711"));
  EXPECT_FALSE(known_failure("the loss is not finite"));
}

int policy_of_a_new_thread() {
  int policy = -1;
  std::thread([&] { policy = sched_getscheduler(0); }).join();
  return policy;
}

// Each in a thread of its own: the policy is a thread's.
void apart(void (*body)()) { std::thread(body).join(); }

TEST(ProcessorPolicy, HoldsForThreadsThatAreStartedLater) {
  apart([] {
    use_batch_scheduling();
    EXPECT_EQ(sched_getscheduler(0), SCHED_BATCH);
    EXPECT_EQ(policy_of_a_new_thread(), SCHED_BATCH);
  });
  EXPECT_EQ(policy_of_a_new_thread(), SCHED_OTHER) << "this thread was not asked";
}

TEST(ProcessorPolicy, LeavesWhatSomebodyChose) {
  apart([] {
    const sched_param idle{};
    ASSERT_EQ(sched_setscheduler(0, SCHED_IDLE, &idle), 0);
    use_batch_scheduling();
    EXPECT_EQ(sched_getscheduler(0), SCHED_IDLE);
  });
}

}  // namespace
}  // namespace lockstep::runtime
