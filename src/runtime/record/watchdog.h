// Watchdog: the thread that ends a rank in order when it cannot end itself.
//
// - Nothing was recorded for `hang_after_s` although a collective is outstanding: end mark `hung`,
//   exit status 5.
// - SIGTERM or SIGINT: end mark `hung` where the program is inside a wait, else `killed`; exit
//   status 128 + signal. (A mark that is there already stays.)
// - The parent died: exit status 128 + SIGKILL, no mark. The kernel's parent-death signal does this
//   first where it can; the check covers a parent that died before it was asked for.
//
// The signals are taken from a file descriptor, not by a handler, so nothing here has to be
// async-signal-safe; every thread must have them blocked.
#pragma once

#include <sys/types.h>

#include <thread>

#include "runtime/record/recorder.h"

namespace lockstep {

inline constexpr int kExitGaveUp = 5;

// Asks the kernel to kill this process when its parent dies, and returns the parent's id. Blocks
// SIGTERM and SIGINT and ignores SIGPIPE. To be called from main before any thread is made: threads
// inherit the mask.
pid_t prepare_process_for_watchdog();

class Watchdog {
 public:
  struct Options {
    int rank = 0;  // for what it says on standard error
    double hang_after_s = 20;
    pid_t parent = 0;  // 0: whoever it is now
  };
  // `recorder` must outlive the watchdog.
  Watchdog(Recorder& recorder, Options options);
  ~Watchdog();  // stops the thread; the signals stay blocked
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void watch();
  [[noreturn]] void end_by_signal(int signal);
  [[noreturn]] void give_up();

  Recorder& recorder_;
  Options options_;
  int signals_ = -1;  // signalfd
  int stop_ = -1;     // eventfd
  std::thread thread_;
};

}  // namespace lockstep
