// Quantities of a simulation, each with its own type, and their text forms.
//
//   parse_duration("500ns")     Picos{500'000}
//   parse_bytes("1MiB")         Bytes{1'048'576};  "1MB" is 1'000'000
//   parse_bandwidth("50GB/s")   Bandwidth{400'000'000'000} bits per second;  also "400Gb/s"
//   parse_flop_rate("989TFLOP/s")
//
// A unit is always required. Decimal and binary prefixes differ (kB = 1000, KiB = 1024), and so do
// bytes (B) and bits (b). A number may have decimals; the result is exact, or the text is refused.
// Errors name the text, what is wrong with it, and what to write instead.
//
// And as every report shows them, so that a figure reads the same wherever it stands: three
// significant digits without trailing zeros, in the unit that fits.
//
//   duration_text(25.1646)      "25.2 s"
//   bytes_text(80e9)            "74.5 GiB"
#pragma once

#include <compare>
#include <concepts>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lockstep {

// A time or duration in picoseconds, never negative, up to 106 days. Sums and products that
// overflow give forever(), which absorbs everything added to it: the final result alone shows
// whether anything overflowed.
struct Picos {
  std::int64_t value = 0;

  static constexpr Picos forever() { return Picos{std::numeric_limits<std::int64_t>::max()}; }
  constexpr bool is_forever() const { return value == forever().value; }
  constexpr double seconds() const { return static_cast<double>(value) * 1e-12; }

  friend constexpr auto operator<=>(Picos, Picos) = default;
  friend constexpr Picos operator+(Picos a, Picos b) {
    return b.value > forever().value - a.value ? forever() : Picos{a.value + b.value};
  }
  // How much later `a` is than `b`; 0 if it is not later. forever() minus anything is forever().
  friend constexpr Picos operator-(Picos a, Picos b) {
    if (a.is_forever()) return a;
    return Picos{a.value > b.value ? a.value - b.value : 0};
  }
  // `times` >= 0.
  friend constexpr Picos operator*(Picos a, std::int64_t times) {
    if (times != 0 && a.value > forever().value / times) return forever();
    return Picos{a.value * times};
  }
  Picos& operator+=(Picos b) { return *this = *this + b; }
};

// A size; never negative.
struct Bytes {
  std::int64_t value = 0;
  friend constexpr auto operator<=>(Bytes, Bytes) = default;
};

// Bits per second; above zero wherever one was parsed.
struct Bandwidth {
  std::int64_t bits_per_second = 0;
  constexpr double bytes_per_second() const { return static_cast<double>(bits_per_second) / 8; }
  friend constexpr auto operator<=>(Bandwidth, Bandwidth) = default;
};

// Floating-point operations per second; above zero wherever one was parsed.
struct FlopRate {
  std::int64_t per_second = 0;
  friend constexpr auto operator<=>(FlopRate, FlopRate) = default;
};

// Parsers. The message of an Error begins with the text; the caller adds the location (an option's
// name, a file's line). Durations and sizes may be zero, rates not.
Result<Picos> parse_duration(std::string_view text);       // ps ns us µs ms s min h
Result<Bytes> parse_bytes(std::string_view text);          // B kB MB GB TB, KiB MiB GiB TiB
Result<Bandwidth> parse_bandwidth(std::string_view text);  // B/s … TB/s, KiB/s …, b/s … Tb/s
Result<FlopRate> parse_flop_rate(std::string_view text);   // FLOP/s, GFLOP/s, TFLOP/s, PFLOP/s

// Comma-separated lists of at least one: "1us,2us,500ns".
Result<std::vector<Picos>> parse_durations(std::string_view comma_separated);
Result<std::vector<Bytes>> parse_sizes(std::string_view comma_separated);

// "1,235", "98.2", "1.5": at most two decimals, so that what is below 0.005 is "0".
std::string number_text(double value);
std::string percent(double share);          // "45.3 %" of 0.453
std::string duration_text(double seconds);  // "104 us", "25.2 s", "2 min 5 s", "3 h 20 min"
std::string duration_text(Picos duration);  // "forever", too
std::string bytes_text(double bytes);       // "300 B", "1.5 KiB", "74.5 GiB"; not negative
template <std::integral T>
std::string bytes_text(T bytes) {
  return bytes_text(static_cast<double>(bytes));
}
inline std::string bytes_text(Bytes bytes) { return bytes_text(bytes.value); }
std::string scientific(double x);      // "1.2e-03"
std::string grouped(std::uint64_t n);  // "1,234,567"
template <std::integral Count>
std::string grouped(Count n) {
  return grouped(static_cast<std::uint64_t>(n));
}

}  // namespace lockstep
