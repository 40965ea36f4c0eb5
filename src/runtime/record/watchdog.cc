#include "runtime/record/watchdog.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>

#include "base/check.h"

namespace lockstep {
namespace {

constexpr int kLookEveryMs = 100;

sigset_t termination_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

}  // namespace

pid_t prepare_process_for_watchdog() {
  const pid_t parent = getppid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const sigset_t set = termination_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  // Writing to a peer that died is to be an exception of the call, with its words, not our end.
  signal(SIGPIPE, SIG_IGN);
  return parent;
}

Watchdog::Watchdog(Recorder& recorder, Options options) : recorder_(recorder), options_(options) {
  if (options_.parent == 0) options_.parent = getppid();
  const sigset_t set = termination_signals();
  signals_ = signalfd(-1, &set, SFD_CLOEXEC);
  stop_ = eventfd(0, EFD_CLOEXEC);
  LOCKSTEP_CHECK(signals_ >= 0 && stop_ >= 0, "no file descriptor left for the watchdog");
  thread_ = std::thread([this] { watch(); });
}

Watchdog::~Watchdog() {
  const std::uint64_t one = 1;
  const auto written = write(stop_, &one, sizeof one);
  LOCKSTEP_CHECK(written == sizeof one, "an eventfd takes one write");
  thread_.join();
  close(signals_);
  close(stop_);
}

void Watchdog::watch() {
  using Clock = std::chrono::steady_clock;
  const auto patience = std::chrono::duration<double>(options_.hang_after_s);
  std::uint64_t seen = recorder_.events();
  Clock::time_point moved = Clock::now();
  for (;;) {
    std::array<pollfd, 2> sources = {pollfd{signals_, POLLIN, 0}, pollfd{stop_, POLLIN, 0}};
    poll(sources.data(), sources.size(), kLookEveryMs);
    if ((sources[1].revents & POLLIN) != 0) return;
    if ((sources[0].revents & POLLIN) != 0) {
      signalfd_siginfo info{};
      if (read(signals_, &info, sizeof info) == sizeof info) {
        end_by_signal(static_cast<int>(info.ssi_signo));
      }
    }
    if (getppid() != options_.parent) _exit(128 + SIGKILL);
    if (const std::uint64_t written = recorder_.events(); written != seen) {
      seen = written;
      moved = Clock::now();
    } else if (!recorder_.outstanding()) {
      moved = Clock::now();  // it computes; nobody else can make it go on
    } else if (Clock::now() - moved > patience) {
      give_up();
    }
  }
}

void Watchdog::end_by_signal(int signal) {
  const bool hung = recorder_.waiting();
  recorder_.ring().finish(hung ? End::hung : End::killed);
  std::fprintf(stderr, "rank %d ended by signal %d%s\n", options_.rank, signal,
               hung ? " while waiting" : "");
  _exit(128 + signal);
}

void Watchdog::give_up() {
  recorder_.ring().finish(End::hung);
  std::fprintf(stderr, "rank %d gave up: nothing moved for %g s and a collective is outstanding\n",
               options_.rank, options_.hang_after_s);
  _exit(kExitGaveUp);
}

}  // namespace lockstep
