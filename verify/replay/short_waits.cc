#include "verify/replay/short_waits.h"

#include <algorithm>

namespace lockstep::verify {

std::optional<ShortWaits> short_waits(const trace::Run& run) {
  constexpr trace::Nanos kSecond = 1'000'000'000;
  // The times of files are whole seconds, and clocks differ: ages below a second are not known.
  constexpr trace::Nanos kAlwaysShort = kSecond;
  // However long a call took before (a checkpoint, the first step): no watchdog gives up sooner.
  // Where no dump holds a call that completed, nothing shows how long calls take.
  constexpr trace::Nanos kNeverShort = 60 * kSecond;
  ShortWaits out;
  trace::Nanos completed = 0;
  bool any_completed = false;
  for (const trace::RankTrace& trace : run.ranks) {
    if (trace.longest_open == trace::kNoTime) return std::nullopt;
    out.open = std::max(out.open, trace.longest_open);
    completed = std::max(completed, trace.longest_completed);
    any_completed =
        any_completed || std::any_of(trace.calls.begin(), trace.calls.end(),
                                     [](const trace::Call& c) { return c.has(trace::kCompleted); });
  }
  if (any_completed) out.completed = completed;
  const trace::Nanos usual = any_completed ? completed : kNeverShort;
  if (out.open >= std::clamp(usual, kAlwaysShort, kNeverShort)) return std::nullopt;
  return out;
}

}  // namespace lockstep::verify
