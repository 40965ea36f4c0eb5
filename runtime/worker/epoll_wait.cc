// epoll_wait(2) as LibTorch calls it in this program, in place of the C library's: it lets others
// run when it gives the same answer again and again.
//
// Why: Gloo's transport thread is told that a connection can be read, tries the connection's lock,
// and if another thread holds it (to send), asks again, at once and until the lock is free. If
// ranks have fewer cores than threads, the holder often waits for the very core on which the
// transport thread asks: two million times in a job of four ranks and six steps, a third of the
// job's processor time (docs/runtime.md). Gloo has no other way to wait, and no option.
#include <sched.h>
#include <sys/epoll.h>

#include <cstdint>

// Everything else is as epoll_wait(2) says. To yield is never wrong: nobody else may want the core.
extern "C" int epoll_wait(int epoll, epoll_event* events, int most, int timeout_ms) {
  // A connection on which several messages come gives the same answer, too, after each. So it takes
  // a third: what was sent meanwhile, the first time, is read without giving up the core.
  constexpr int kYieldAfter = 2;
  thread_local std::uint64_t last = 0;  // whom the last answer was about; Gloo has a pointer here
  thread_local int again = 0;           // how often in a row
  const int ready = epoll_pwait(epoll, events, most, timeout_ms, nullptr);
  const std::uint64_t whom = ready == 1 ? events[0].data.u64 : 0;
  again = whom != 0 && whom == last ? again + 1 : 0;
  last = whom;
  if (again >= kYieldAfter) sched_yield();
  return ready;
}
