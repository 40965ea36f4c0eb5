// Watchdog: the thread that ends a rank when it cannot end itself, wherever its program is blocked.
//
// - Nothing moved for `hang_after_s` although a call is outstanding, or the program is blocked on
// the
//   other ranks outside of any call (Recorder::Blocked): end mark `hung`, exit status 5.
// - `total_s` is over, whatever the program does: end mark `hung` where it depends on others, else
//   `killed`; exit status 5.
// - SIGTERM: end mark `hung` where it is inside a wait, blocked, or waits on a device; else
// `killed`.
//   SIGINT, which people send: `killed`. Exit status 128 + signal. (A mark that is there stays.)
// - The parent died: exit status 128 + SIGKILL, no mark. The kernel's parent-death signal does this
//   first where it can; the check covers a parent that died before it was asked for.
//
// A rank that hangs leaves the stacks of the threads that run its program (thread_stacks.h) in a
// file, and its communicators are aborted, which lets a device go. Each of these has its own bound,
// and all of it has one that is not ours: a kernel's timer kills the process if a lock, a full pipe
// or a driver keeps the watchdog itself. The same timer stands behind `total_s`.
//
// The signals are taken from a file descriptor, not by a handler, so nothing here has to be
// async-signal-safe; every thread must have them blocked.
#pragma once

#include <sys/types.h>
#include <time.h>

#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "runtime/record/recorder.h"

namespace lockstep::runtime {

inline constexpr int kExitGaveUp = 5;
// Beyond the limits of the scenario: so that what ends by itself then, with better words, does.
inline constexpr double kExitGraceS = 5;

// Asks the kernel to kill this process when its parent dies, and returns the parent's id. Blocks
// SIGTERM and SIGINT and ignores SIGPIPE. To be called from main before any thread is made: threads
// inherit the mask.
pid_t prepare_process_for_watchdog();

class Watchdog {
 public:
  struct Options {
    int rank = 0;  // for what it says on standard error
    double hang_after_s = 20;
    double total_s = 0;            // from now on; 0: no limit
    double grace_s = kExitGraceS;  // beyond total_s
    pid_t parent = 0;              // 0: whoever it is now
    std::string stack_file = {};   // where a hanging rank's stacks go; empty: nowhere
  };
  // `recorder` must outlive the watchdog.
  Watchdog(Recorder& recorder, Options options);
  ~Watchdog();  // stops the thread; the signals stay blocked
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // What lets a device go that hangs: called once, on a thread of its own, when a hanging rank is
  // ended; it need not return. Replaces what was given before; empty: nothing.
  void abort_by(std::function<void()> abort);

 private:
  using Clock = std::chrono::steady_clock;

  void watch();
  // Ends the rank if it must be ended now.
  void look(Clock::time_point now);
  bool depends_on_others() const;
  void end_by_signal(int signal);
  // `why` ends in a new line.
  [[noreturn]] void end(trace::End mark, int status, const std::string& why);
  void abort_communicators();

  Recorder& recorder_;
  Options options_;
  std::mutex abort_mutex_;
  std::function<void()> abort_;
  Clock::time_point began_;
  std::uint64_t seen_ = 0;      // the rank's movements …
  Clock::time_point moved_at_;  // … and when they were seen first
  timer_t last_resort_{};       // kills the process
  int signals_ = -1;            // signalfd
  int stop_ = -1;               // eventfd
  std::thread thread_;
};

}  // namespace lockstep::runtime
