// Interrupts: turns SIGINT, SIGTERM and SIGHUP into something that a loop can ask for, so that a
// job is cleaned up by plain code and not inside a signal handler.
//
// While one lives, the calling thread (and those it starts) does not die of these signals.
#pragma once

#include <signal.h>

namespace lockstep {

class Interrupts {
 public:
  Interrupts();
  ~Interrupts();  // restores the mask; a signal that came and was not asked for then strikes
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // The first signal that came; 0: none. Never blocks.
  int poll();

 private:
  sigset_t before_;
  int descriptor_ = -1;
  int first_ = 0;
};

}  // namespace lockstep
