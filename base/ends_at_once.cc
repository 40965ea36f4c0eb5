#include "base/ends_at_once.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <utility>

#include "base/check.h"

namespace lockstep {

EndsAtOnce::EndsAtOnce(std::function<void()> clean_up) {
  sigset_t ending;
  sigemptyset(&ending);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&ending, number);
  signals_ = signalfd(-1, &ending, SFD_NONBLOCK | SFD_CLOEXEC);
  over_ = eventfd(0, EFD_CLOEXEC);
  LOCKSTEP_CHECK(signals_ >= 0 && over_ >= 0, "no descriptor for signals");
  watcher_ = std::thread([signals = signals_, over = over_, clean = std::move(clean_up)] {
    for (;;) {
      std::array<pollfd, 2> waited = {{{signals, POLLIN, 0}, {over, POLLIN, 0}}};
      ::poll(waited.data(), waited.size(), -1);
      if (waited[1].revents != 0) return;
      signalfd_siginfo info{};
      // Without one: another reader, who polls, was faster.
      if (read(signals, &info, sizeof info) != static_cast<ssize_t>(sizeof info)) continue;
      clean();
      // No destructors: the other threads still compute.
      _exit(128 + static_cast<int>(info.ssi_signo));
    }
  });
}

EndsAtOnce::~EndsAtOnce() {
  const std::uint64_t one = 1;
  LOCKSTEP_CHECK(write(over_, &one, sizeof one) == static_cast<ssize_t>(sizeof one),
                 "the watcher of signals is not told to end");
  watcher_.join();
  close(signals_);
  close(over_);
}

}  // namespace lockstep
