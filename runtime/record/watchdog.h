// Watchdog: the thread that ends a rank that cannot end itself, wherever its program is blocked.
//
// - Nothing moved for `hang_after_s` although a call is outstanding, or the program is blocked on
//   the other ranks outside of any call (Recorder::Blocked): end mark `hung`, exit status 5.
// - `total_s` is over, whatever the program does: end mark `hung` if it depends on others, else
//   `killed`; exit status 5.
// - SIGTERM: end mark `hung` if it is inside a wait, blocked, or waits on a device; else `killed`.
//   SIGINT, which people send: `killed`. Exit status 128 + signal. (An existing mark is kept.)
// - The parent died: exit status 128 + SIGKILL, no mark. The kernel's parent-death signal does this
//   first if it can; the check covers a parent that died before the signal was requested.
//
// A rank that hangs writes the stacks of its program's threads (thread_stacks.h) to a file, and its
// communicators are aborted, which releases the device. Each of these steps has its own time limit.
// A kernel timer limits all of it together: it kills the process if a lock, a full pipe or a driver
// blocks the watchdog itself. The same timer also enforces `total_s`.
//
// Signals are read from a file descriptor, not in a handler, so nothing here has to be
// async-signal-safe. Every thread must have them blocked.
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
// Added to the limits of the scenario, so that a program that ends by itself, with a better
// message, has time to do so.
inline constexpr double kExitGraceS = 5;

// Asks the kernel to kill this process when its parent dies, and returns the parent's id. Blocks
// SIGTERM and SIGINT, and ignores SIGPIPE. Call it from main before any thread is created: threads
// inherit the mask.
pid_t prepare_process_for_watchdog();

class Watchdog {
 public:
  struct Options {
    int rank = 0;  // for messages on standard error
    double hang_after_s = 20;
    double total_s = 0;            // from now on; 0: no limit
    double grace_s = kExitGraceS;  // added to total_s
    pid_t parent = 0;              // 0: the current parent
    std::string stack_file = {};   // file for a hanging rank's stacks; empty: none
  };
  // `recorder` must outlive the watchdog.
  Watchdog(Recorder& recorder, Options options);
  ~Watchdog();  // stops the thread; the signals stay blocked
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Sets the function that releases a hanging device. It is called once, on its own thread, when a
  // hanging rank is ended, and need not return. Replaces the previous one; empty: none.
  void abort_by(std::function<void()> abort);

 private:
  using Clock = std::chrono::steady_clock;

  void watch();
  // Ends the rank if necessary.
  void look(Clock::time_point now);
  bool depends_on_others() const;
  void end_by_signal(int signal);
  // `why`: the reason, for standard error.
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
