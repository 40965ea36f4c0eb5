#include "runtime/record/watchdog.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <condition_variable>
#include <exception>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/files/write_file.h"
#include "base/text.h"
#include "runtime/record/thread_stacks.h"

namespace lockstep::runtime {
namespace {

using std::chrono::milliseconds;

constexpr int kLookEveryMs = 100;
// On a device calls are outstanding also while all is well. When a rank has to end, they count
// as a hang only if nothing moved for this long. Less than the silence after which `lockstep run`
// looks for a proof.
constexpr milliseconds kQuiet(100);
// `lockstep run` sends SIGKILL two seconds after SIGTERM: 0.5 s + 0.8 s fit into 1.8 s, and that
// into 2 s.
constexpr milliseconds kStacksTake(500);
constexpr milliseconds kAbortTakes(800);
constexpr double kEndTakesS = 1.8;

sigset_t termination_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

// A kernel timer that kills this process, whatever its threads are doing.
timer_t make_killing_timer() {
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGKILL;
  timer_t timer{};
  LOCKSTEP_CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0, "no timer is left");
  return timer;
}

void kill_after(timer_t timer, double seconds) {
  itimerspec at{};
  at.it_value.tv_sec = static_cast<time_t>(seconds);
  at.it_value.tv_nsec = static_cast<long>((seconds - std::floor(seconds)) * 1e9);
  timer_settime(timer, 0, &at, nullptr);
}

// Not with stdio: a hanging thread may hold its lock.
void say(const std::string& text) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

std::string number(double value) {
  return value == std::floor(value) ? fixed(value, 0) : fixed(value, 1);
}

}  // namespace

pid_t prepare_process_for_watchdog() {
  const pid_t parent = getppid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const sigset_t set = termination_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  // Writing to a dead peer must become an exception of the call, with a message, and not kill us.
  signal(SIGPIPE, SIG_IGN);
  return parent;
}

Watchdog::Watchdog(Recorder& recorder, Options options)
    : recorder_(recorder), options_(std::move(options)), began_(Clock::now()), moved_at_(began_) {
  if (options_.parent == 0) options_.parent = getppid();
  prepare_to_stop_program();
  last_resort_ = make_killing_timer();
  if (options_.total_s > 0) {
    kill_after(last_resort_, options_.total_s + options_.grace_s + kEndTakesS + 1);
  }
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
  timer_delete(last_resort_);
  close(signals_);
  close(stop_);
}

void Watchdog::abort_by(std::function<void()> abort) {
  const std::lock_guard lock(abort_mutex_);
  abort_ = std::move(abort);
}

void Watchdog::watch() {
  seen_ = recorder_.movements();
  for (;;) {
    std::array<pollfd, 2> sources = {pollfd{signals_, POLLIN, 0}, pollfd{stop_, POLLIN, 0}};
    poll(sources.data(), sources.size(), kLookEveryMs);
    if ((sources[1].revents & POLLIN) != 0) return;
    if (getppid() != options_.parent) _exit(128 + SIGKILL);
    const Clock::time_point now = Clock::now();
    if (const std::uint64_t moved = recorder_.movements(); moved != seen_) {
      seen_ = moved;
      moved_at_ = now;
    }
    if ((sources[0].revents & POLLIN) != 0) {
      signalfd_siginfo info{};
      if (read(signals_, &info, sizeof info) == sizeof info) {
        end_by_signal(static_cast<int>(info.ssi_signo));
      }
    }
    look(now);
  }
}

bool Watchdog::depends_on_others() const {
  return recorder_.outstanding() || recorder_.blocked_in() != nullptr;
}

void Watchdog::look(Clock::time_point now) {
  const auto since = [now](Clock::time_point then) {
    return std::chrono::duration<double>(now - then).count();
  };
  if (options_.total_s > 0 && since(began_) > options_.total_s + options_.grace_s) {
    end(depends_on_others() ? trace::End::hung : trace::End::killed, kExitGaveUp,
        fmt::format("was ended: limits.total_s ({} s) is over", number(options_.total_s)));
  }
  const char* const blocked = recorder_.blocked_in();
  const bool may_last =
      blocked != nullptr && recorder_.blocked_until() == Recorder::Blocked::Limit::total;
  if (!depends_on_others() || may_last) {
    moved_at_ = now;  // it computes, and no other rank can change that; or others may still come
  } else if (since(moved_at_) > options_.hang_after_s) {
    end(trace::End::hung, kExitGaveUp,
        fmt::format("gave up: nothing moved for {} s{}", number(options_.hang_after_s),
                    blocked != nullptr ? fmt::format(" while it waits for {}", blocked)
                                       : " and a collective is outstanding"));
  }
}

void Watchdog::end_by_signal(int signal) {
  const bool quiet = Clock::now() - moved_at_ >= kQuiet;
  const bool waiting = recorder_.waiting() || recorder_.blocked_in() != nullptr ||
                       (recorder_.outstanding() && quiet);
  const bool hung = signal == SIGTERM && waiting;
  end(hung ? trace::End::hung : trace::End::killed, 128 + signal,
      fmt::format("ended by signal {}{}", signal, hung ? " while waiting" : ""));
}

void Watchdog::end(trace::End mark, int status, const std::string& why) {
  recorder_.ring().finish(mark);  // first, so that nothing below can prevent it
  kill_after(last_resort_, kEndTakesS);
  const std::string words = fmt::format("rank {} {}\n", options_.rank, why);
  say(words);
  if (mark == trace::End::hung || status == kExitGaveUp) {
    const std::vector<StoppedThread> threads = stop_program(kStacksTake);
    if (!options_.stack_file.empty()) {
      const Status written =
          write_file(options_.stack_file, fmt::format("{}\n{}", words, to_text(threads)));
      if (!written) say(fmt::format("{}\n", written.error().str()));
    }
    abort_communicators();
  }
  _exit(status);
}

void Watchdog::abort_communicators() {
  struct Aborting {
    std::mutex mutex;
    std::condition_variable ended;
    bool done = false;
  };
  const auto aborting = std::make_shared<Aborting>();
  {
    const std::lock_guard lock(abort_mutex_);
    if (!abort_) return;
    std::thread([aborting, abort = abort_] {
      try {
        abort();
      } catch (const std::exception& error) {
        say(fmt::format("its communicators could not be aborted: {}\n", error.what()));
      }
      const std::lock_guard done(aborting->mutex);
      aborting->done = true;
      aborting->ended.notify_one();
    }).detach();
  }
  std::unique_lock lock(aborting->mutex);
  aborting->ended.wait_for(lock, kAbortTakes, [&] { return aborting->done; });
}

}  // namespace lockstep::runtime
