// HangWatch: decides when a rank's end mark should say that it hangs.
//
// A process that is killed leaves no end mark, and its file does not show whether it hung before or
// went on. So while calls are on the device and nothing at all has been recorded for some time, the
// mark says `hung`; it is taken back when something moves. No clock of its own: look() is called
// every now and then, in programs that are recorded from outside by a thread (look_at_times).
#pragma once

#include <cstdint>
#include <functional>

namespace lockstep::trace {

class HangWatch {
 public:
  // `timeout`: ns without a record before a rank counts as hanging.
  explicit HangWatch(std::int64_t timeout) : timeout_(timeout) {}

  enum class Verdict : std::uint8_t { as_before, hangs, goes_on };
  // `written`: records so far. `on_device`: as in RecordedRank. `now`: ns.
  Verdict look(std::uint64_t written, std::int64_t on_device, std::int64_t now);

 private:
  const std::int64_t timeout_;
  std::uint64_t written_ = 0;
  std::int64_t moved_at_ = 0;  // when `written` was first seen
  bool first_ = true, hangs_ = false;
};

// The seconds that LOCKSTEP_RECORD_HUNG_AFTER says; without it 60. 0: never; so is what is no
// number.
double hang_timeout(const char* text);

// Calls `look` with the time (ns, CLOCK_MONOTONIC) some times in `timeout` seconds, at most 100
// times a second, until the process is gone. On a thread of its own, which takes none of the
// program's signals. Throws std::system_error where there is none to be had.
void look_at_times(double timeout, std::function<void(std::int64_t now)> look);

}  // namespace lockstep::trace
