#include "trace/formats/ring/hang_watch.h"

#include <signal.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <exception>
#include <string_view>
#include <thread>
#include <utility>

#include "base/clock.h"

namespace lockstep::trace {

HangWatch::Verdict HangWatch::look(std::uint64_t written, std::int64_t on_device,
                                   std::int64_t now) {
  if (first_ || written != written_) {
    first_ = false;
    written_ = written;
    moved_at_ = now;
    if (!hangs_) return Verdict::as_before;
    hangs_ = false;
    return Verdict::goes_on;
  }
  if (hangs_ || on_device <= 0 || now - moved_at_ < timeout_) return Verdict::as_before;
  hangs_ = true;
  return Verdict::hangs;
}

double hang_timeout(const char* text) {
  constexpr double kSeconds = 60;  // where nothing is set
  constexpr double kMax = 1e9;     // which in ns still is a number
  double seconds = kSeconds;
  if (text != nullptr) std::from_chars(text, text + std::string_view(text).size(), seconds);
  return seconds > 0 ? std::min(seconds, kMax) : 0;  // not a number: never
}

void look_at_times(double timeout, std::function<void(std::int64_t now)> look) {
  constexpr double kLooks = 8;  // in the time that a hang takes to be one
  // Not so often that it costs, and at least once a second.
  constexpr double kShortest = 0.01;
  constexpr double kLongest = 1;
  const std::chrono::duration<double> pause(std::clamp(timeout / kLooks, kShortest, kLongest));
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::exception_ptr failure;
  try {
    std::thread([pause, look = std::move(look)] {
      for (;;) {
        std::this_thread::sleep_for(pause);
        look(monotonic_nanos());
      }
    }).detach();
  } catch (...) {
    failure = std::current_exception();
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (failure) std::rethrow_exception(failure);
}

}  // namespace lockstep::trace
