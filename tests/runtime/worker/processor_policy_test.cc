#include <sched.h>

#include <thread>

#include <gtest/gtest.h>

#include "runtime/worker/machine.h"

namespace lockstep::runtime {
namespace {

int policy_of_a_new_thread() {
  int policy = -1;
  std::thread([&] { policy = sched_getscheduler(0); }).join();
  return policy;
}

// Each in a thread of its own: the policy is a thread's.
void apart(void (*body)()) { std::thread(body).join(); }

TEST(ProcessorPolicy, HoldsForThreadsThatAreStartedLater) {
  apart([] {
    keep_the_processor_when_waking();
    EXPECT_EQ(sched_getscheduler(0), SCHED_BATCH);
    EXPECT_EQ(policy_of_a_new_thread(), SCHED_BATCH);
  });
  EXPECT_EQ(policy_of_a_new_thread(), SCHED_OTHER) << "this thread was not asked";
}

TEST(ProcessorPolicy, LeavesWhatSomebodyChose) {
  apart([] {
    const sched_param idle{};
    ASSERT_EQ(sched_setscheduler(0, SCHED_IDLE, &idle), 0);
    keep_the_processor_when_waking();
    EXPECT_EQ(sched_getscheduler(0), SCHED_IDLE);
  });
}

}  // namespace
}  // namespace lockstep::runtime
