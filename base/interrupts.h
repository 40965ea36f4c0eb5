// Interrupts: makes SIGINT, SIGTERM and SIGHUP values that a loop polls, so that plain code cleans
// up a job, not a signal handler.
//
// While an object lives, these signals do not end the calling thread and the threads that it
// starts.
#pragma once

#include <signal.h>

namespace lockstep {

class Interrupts {
 public:
  Interrupts();
  ~Interrupts();  // restores the mask; a pending signal that was not polled then takes effect
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // The first signal received; 0: none. Never blocks.
  int poll();

 private:
  sigset_t before_;
  int descriptor_ = -1;
  int first_ = 0;
};

}  // namespace lockstep
