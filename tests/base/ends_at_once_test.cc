#include "base/ends_at_once.h"

#include <signal.h>
#include <unistd.h>

#include <cstdlib>

#include <gtest/gtest.h>

#include "base/interrupts.h"

namespace lockstep {
namespace {

// In a process of its own, as the signal ends it.
TEST(EndsAtOnce, ASignalEndsWhatComputes) {
  for (const int number : {SIGINT, SIGTERM}) {
    EXPECT_EXIT(
        {
          const Interrupts interrupts;
          const EndsAtOnce ends([] { static_cast<void>(write(STDERR_FILENO, "cleaned", 7)); });
          kill(getpid(), number);
          for (;;) pause();  // computes, and never polls
        },
        testing::ExitedWithCode(128 + number), "^cleaned$");
  }
}

TEST(EndsAtOnce, ALaterSignalIsPolled) {
  Interrupts interrupts;
  {
    const EndsAtOnce ends([] { std::abort(); });
  }
  kill(getpid(), SIGTERM);
  EXPECT_EQ(interrupts.poll(), SIGTERM);
}

}  // namespace
}  // namespace lockstep
