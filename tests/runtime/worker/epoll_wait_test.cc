// The worker's own epoll_wait(2).
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <latch>
#include <thread>

#include <gtest/gtest.h>

#include "runtime/worker/machine.h"

namespace lockstep::runtime {
namespace {

// An eventfd, and an epoll instance that waits for it.
class Polled {
 public:
  Polled() {
    epoll_event wanted{};
    wanted.events = EPOLLIN;
    wanted.data.ptr = this;
    EXPECT_EQ(epoll_ctl(epoll_, EPOLL_CTL_ADD, event_, &wanted), 0);
  }
  ~Polled() {
    close(event_);
    close(epoll_);
  }
  Polled(const Polled&) = delete;
  Polled& operator=(const Polled&) = delete;

  void make_readable() { EXPECT_EQ(eventfd_write(event_, 1), 0); }
  int poll() {
    epoll_event event{};
    const int ready = epoll_wait(epoll_, &event, 1, /*timeout_ms=*/1);
    if (ready == 1) {
      EXPECT_EQ(event.data.ptr, this);
    }
    return ready;
  }

 private:
  int epoll_ = epoll_create1(EPOLL_CLOEXEC);
  int event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
};

void share_one_core() {
  cpu_set_t cores;
  ASSERT_EQ(sched_getaffinity(0, sizeof cores, &cores), 0);
  std::size_t first = 0;
  while (!CPU_ISSET(first, &cores)) ++first;
  CPU_ZERO(&cores);
  CPU_SET(first, &cores);
  ASSERT_EQ(sched_setaffinity(0, sizeof cores, &cores), 0);
}

TEST(EpollWait, SaysWhatIsReady) {
  Polled polled;
  EXPECT_EQ(polled.poll(), 0) << "nothing is";
  polled.make_readable();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(polled.poll(), 1) << "nobody has read it";
}

// Two threads on one core take turns, and who waits for its turn polls what nobody reads.
TEST(EpollWait, GivesUpTheCoreWhereTheAnswerStaysTheSame) {
  constexpr int kTurns = 50;
  std::atomic<int> turn = 0;
  std::atomic<int> polls = 0;
  std::latch both_started(2);
  const auto take_turns = [&](int mine) {
    share_one_core();
    use_batch_scheduling();  // as a worker's threads
    Polled polled;
    polled.make_readable();
    both_started.arrive_and_wait();
    while (turn < kTurns) {
      if (turn % 2 == mine) ++turn;
      polled.poll();
      ++polls;
    }
  };
  std::thread other(take_turns, 1);
  std::thread(take_turns, 0).join();
  other.join();
  // Polling until its time slice ends, each would ask a thousand times and more a turn.
  EXPECT_LT(polls, 100 * kTurns);
}

}  // namespace
}  // namespace lockstep::runtime
