// The clock of the message level: ticks per picosecond, and what messages last in them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/quantities.h"
#include "base/rational.h"
#include "sim/messages/max_min.h"

namespace lockstep::sim {

// No simulated time is above this many ticks.
inline constexpr std::int64_t kMostTicks = std::int64_t{1} << 60;

class Ticks {
 public:
  explicit Ticks(std::int64_t per_pico) : per_pico_(per_pico) {}

  // The least number for which all `durations` (in picoseconds) are whole, if `horizon` then still
  // fits; else a power of two, so that a message is off by 2^-21 ps at most where there is room.
  static Ticks for_durations(const std::vector<Rational>& durations, Picos horizon);

  std::int64_t per_pico() const { return per_pico_; }
  // Nothing: too many.
  std::optional<std::int64_t> of(const Rational& picos) const;
  // Rounded to the nearest picosecond.
  Picos picos(std::int64_t ticks) const;

 private:
  std::int64_t per_pico_;
};

// Bytes as work: bit/s · kRateScale, for so many ticks. Nothing: too much to be counted.
std::optional<Int128> work_of(const Rational& bytes, const Ticks& ticks);

}  // namespace lockstep::sim
