#include "base/interrupts.h"

#include <pthread.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/check.h"

namespace lockstep {

Interrupts::Interrupts() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, number);
  // Blocked signals stay pending and can be read from the descriptor; threads inherit the mask.
  pthread_sigmask(SIG_BLOCK, &signals, &before_);
  descriptor_ = signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
  LOCKSTEP_CHECK(descriptor_ >= 0, "no descriptor for signals");
}

Interrupts::~Interrupts() {
  close(descriptor_);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

int Interrupts::poll() {
  signalfd_siginfo info{};
  // Reads all that are pending; the first one decides the exit status.
  while (read(descriptor_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    if (first_ == 0) first_ = static_cast<int>(info.ssi_signo);
  }
  return first_;
}

}  // namespace lockstep
