#include "sim/messages/clock.h"

#include <algorithm>

namespace lockstep::sim {
namespace {

// At a finer resolution, sizes above about 256 GiB would not fit 128 bits as work.
constexpr std::int64_t kMaxPerPico = std::int64_t{1} << 24;
// Where rounding is unavoidable: half a tick is 2^-21 ps.
constexpr std::int64_t kRoundedPerPico = std::int64_t{1} << 20;
constexpr Int128 kMaxWork = static_cast<Int128>(1) << 126;

}  // namespace

Ticks Ticks::for_durations(const std::vector<Rational>& durations, Picos horizon) {
  const std::int64_t room = std::clamp<std::int64_t>(
      kMaxTicks / std::max<std::int64_t>(horizon.value, 1), 1, kMaxPerPico);
  // The least common multiple of the denominators, given up once it exceeds the room.
  Int128 common = 1;
  for (const Rational& duration : durations) {
    if (duration.too_large()) continue;  // of() will report it
    const Int128 denominator = duration.denominator();
    common = common / Rational::gcd(common, denominator) * std::min<Int128>(denominator, room + 1);
    if (common > room) break;
  }
  if (common <= room) return Ticks(static_cast<std::int64_t>(common));
  std::int64_t power = 1;
  while (power * 2 <= std::min(room, kRoundedPerPico)) power *= 2;
  return Ticks(power);
}

std::optional<std::int64_t> Ticks::of(const Rational& picos) const {
  const std::optional<std::int64_t> ticks = (picos * per_pico_).rounded();
  if (!ticks || *ticks > kMaxTicks) return std::nullopt;
  return ticks;
}

Picos Ticks::picos(std::int64_t ticks) const {
  // Half a picosecond rounds up. Written without 2 * remainder, which could overflow.
  return Picos{ticks / per_pico_ + (ticks % per_pico_ >= per_pico_ - ticks % per_pico_ ? 1 : 0)};
}

std::optional<Int128> work_of(const Rational& bytes, const Ticks& ticks) {
  constexpr Int128 kPicosPerSecond = 1'000'000'000'000;
  const Rational work =
      bytes * Rational(8 * kPicosPerSecond) * Rational(kRateScale) * Rational(ticks.per_pico());
  if (work.too_large()) return std::nullopt;
  const Int128 whole = work.numerator() / work.denominator();
  if (whole > kMaxWork) return std::nullopt;
  return whole;
}

}  // namespace lockstep::sim
