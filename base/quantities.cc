#include "base/quantities.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <span>
#include <utility>

#include "base/text.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

// A unit, as a multiple of the base unit (ps, bytes, bits per second, FLOP/s).
struct Unit {
  std::string_view name;
  std::int64_t factor;
};

constexpr std::array kDurations = {
    Unit{"ps", 1},
    Unit{"ns", 1'000},
    Unit{"us", 1'000'000},
    Unit{"µs", 1'000'000},
    Unit{"ms", 1'000'000'000},
    Unit{"s", 1'000'000'000'000},
    Unit{"min", 60'000'000'000'000},
    Unit{"h", 3'600'000'000'000'000},
};
constexpr std::array kSizes = {
    Unit{"B", 1},
    Unit{"kB", 1'000},
    Unit{"KB", 1'000},
    Unit{"MB", 1'000'000},
    Unit{"GB", 1'000'000'000},
    Unit{"TB", 1'000'000'000'000},
    Unit{"KiB", std::int64_t{1} << 10},
    Unit{"MiB", std::int64_t{1} << 20},
    Unit{"GiB", std::int64_t{1} << 30},
    Unit{"TiB", std::int64_t{1} << 40},
};
constexpr std::array kBandwidths = {
    Unit{"B/s", 8},
    Unit{"kB/s", 8'000},
    Unit{"KB/s", 8'000},
    Unit{"MB/s", 8'000'000},
    Unit{"GB/s", 8'000'000'000},
    Unit{"TB/s", 8'000'000'000'000},
    Unit{"KiB/s", std::int64_t{8} << 10},
    Unit{"MiB/s", std::int64_t{8} << 20},
    Unit{"GiB/s", std::int64_t{8} << 30},
    Unit{"TiB/s", std::int64_t{8} << 40},
    Unit{"b/s", 1},
    Unit{"kb/s", 1'000},
    Unit{"Mb/s", 1'000'000},
    Unit{"Gb/s", 1'000'000'000},
    Unit{"Tb/s", 1'000'000'000'000},
};
constexpr std::array kFlopRates = {
    Unit{"FLOP/s", 1},
    Unit{"MFLOP/s", 1'000'000},
    Unit{"GFLOP/s", 1'000'000'000},
    Unit{"TFLOP/s", 1'000'000'000'000},
    Unit{"PFLOP/s", 1'000'000'000'000'000},
};

struct UnitKind {
  std::string_view what;     // "a duration"
  std::string_view example;  // "500ns"
  std::string_view finest;   // the base unit: "picoseconds"
  std::span<const Unit> units;
  bool may_be_zero;
};

std::string unit_names(const UnitKind& kind) {
  std::vector<std::string> names;
  for (const Unit& unit : kind.units) names.emplace_back(unit.name);
  return join_and(names);
}

Error refusal(std::string_view text, std::string why, const UnitKind& kind) {
  // The text may be a whole file that was passed by mistake.
  constexpr std::size_t kShown = 60;
  const std::string shown = printable(text.substr(0, kShown)) + (text.size() > kShown ? "…" : "");
  return {"\"" + shown + "\" " + std::move(why),
          {},
          "write " + std::string(kind.what) + " as a number and a unit, like " +
              std::string(kind.example) + "; units: " + unit_names(kind)};
}

// digits · 10^-decimals, exactly.
struct Decimal {
  std::int64_t digits = 0;
  int decimals = 0;
  std::size_t length = 0;  // characters that were read; 0: not a number
  bool too_long = false;   // more digits than 64 bits hold
};

Decimal read_decimal(std::string_view text) {
  Decimal number;
  bool point = false;
  std::size_t digits_seen = 0;
  for (; number.length < text.size(); ++number.length) {
    const char c = text[number.length];
    if (c == '.' && !point) {
      point = true;
      continue;
    }
    if (!is_digit(c)) break;
    ++digits_seen;
    const std::int64_t digit = c - '0';
    // Keeps reading, so that the unit is found and the message is about the size.
    if (number.digits > (kMax - digit) / 10) {
      number.too_long = true;
      continue;
    }
    number.digits = number.digits * 10 + digit;
    if (point) ++number.decimals;
  }
  if (digits_seen == 0) number.length = 0;
  return number;
}

Result<std::int64_t> parse(std::string_view text, const UnitKind& kind) {
  if (text.empty()) return refusal(text, "is empty", kind);
  if (text.front() == '-') return refusal(text, "is negative", kind);
  Decimal number = read_decimal(text);
  if (number.length == 0) return refusal(text, "does not begin with a number", kind);
  std::string_view unit_text = text.substr(number.length);
  while (!unit_text.empty() && unit_text.front() == ' ') unit_text.remove_prefix(1);
  if (unit_text.empty()) return refusal(text, "has no unit", kind);
  const Unit* unit = nullptr;
  for (const Unit& one : kind.units)
    if (one.name == unit_text) unit = &one;
  if (unit == nullptr) return refusal(text, "has an unknown unit", kind);
  if (number.too_long) return refusal(text, "is too large, or has too many digits", kind);
  // 0.5 kB: divide the factor before multiplying, so that nothing is rounded. Each decimal needs a
  // factor of 10 from the digits, from the unit, or 2 from the unit and 5 from the digits.
  std::int64_t factor = unit->factor;
  for (; number.decimals > 0; --number.decimals) {
    if (number.digits % 10 == 0) {
      number.digits /= 10;
    } else if (factor % 10 == 0) {
      factor /= 10;
    } else if (factor % 2 == 0 && number.digits % 5 == 0) {
      factor /= 2, number.digits /= 5;
    } else {
      return refusal(text, "is not a whole number of " + std::string(kind.finest), kind);
    }
  }
  // Strictly below the largest value, which means "forever".
  if (factor != 0 && number.digits > (kMax - 1) / factor)
    return refusal(text, "is too large", kind);
  const std::int64_t value = number.digits * factor;
  if (value == 0 && !kind.may_be_zero) return refusal(text, "is zero, but must be more", kind);
  return value;
}

const UnitKind& duration_kind() {
  static const UnitKind kind = {"a duration", "500ns", "picoseconds", kDurations, true};
  return kind;
}
const UnitKind& size_kind() {
  static const UnitKind kind = {"a size", "1MiB", "bytes", kSizes, true};
  return kind;
}

template <class Value>
Result<std::vector<Value>> parse_list(std::string_view text,
                                      Result<Value> (*parse_one)(std::string_view)) {
  std::vector<Value> values;
  for (const std::string_view part : split(text, ',')) {
    Result<Value> value = parse_one(part);
    if (!value) return value.error();
    values.push_back(*value);
  }
  return values;
}

// `value` in the largest of the units, each `factor` times the one before, in which it is not below
// 1 as it will be rounded: 1023.9 KiB are 1 MiB.
std::string scaled(double value, double factor, std::span<const std::string_view> units) {
  std::size_t unit = 0;
  for (; unit + 1 < units.size() && value >= factor - 0.5; ++unit) value /= factor;
  return number_text(value).append(" ").append(units[unit]);
}

}  // namespace

Result<Picos> parse_duration(std::string_view text) {
  const Result<std::int64_t> value = parse(text, duration_kind());
  if (!value) return value.error();
  return Picos{*value};
}

Result<Bytes> parse_bytes(std::string_view text) {
  const Result<std::int64_t> value = parse(text, size_kind());
  if (!value) return value.error();
  return Bytes{*value};
}

Result<Bandwidth> parse_bandwidth(std::string_view text) {
  static const UnitKind kind = {"a bandwidth", "50GB/s", "bits per second", kBandwidths, false};
  const Result<std::int64_t> value = parse(text, kind);
  if (!value) return value.error();
  return Bandwidth{*value};
}

Result<FlopRate> parse_flop_rate(std::string_view text) {
  static const UnitKind kind = {"a rate", "989TFLOP/s", "operations per second", kFlopRates, false};
  const Result<std::int64_t> value = parse(text, kind);
  if (!value) return value.error();
  return FlopRate{*value};
}

Result<std::vector<Picos>> parse_durations(std::string_view comma_separated) {
  return parse_list<Picos>(comma_separated, parse_duration);
}

Result<std::vector<Bytes>> parse_sizes(std::string_view comma_separated) {
  return parse_list<Bytes>(comma_separated, parse_bytes);
}

std::string number_text(double value) {
  if (value < 0) {
    const std::string size = number_text(-value);
    return size == "0" ? size : "-" + size;
  }
  if (value >= 999.5)
    return grouped(static_cast<std::uint64_t>(std::llround(std::min(value, 1e18))));
  // The first number that rounds to one digit more before the point has one decimal less.
  std::string out = fixed(value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0);
  if (out.find('.') == kNpos) return out;
  out.erase(out.find_last_not_of('0') + 1);
  if (out.back() == '.') out.pop_back();
  return out;
}

std::string bytes_text(double bytes) {
  static constexpr std::array<std::string_view, 6> kUnits = {"B",   "KiB", "MiB",
                                                             "GiB", "TiB", "PiB"};
  return scaled(bytes, 1024, kUnits);
}

std::string duration_text(double seconds) {
  static constexpr std::array<std::string_view, 5> kUnits = {"ps", "ns", "us", "ms", "s"};
  if (seconds == 0) return "0 s";
  if (seconds < 59.95) return scaled(seconds * 1e12, 1000, kUnits);
  const auto whole = static_cast<std::uint64_t>(std::llround(std::min(seconds, 1e18)));
  const auto both = [](std::uint64_t large, const char* unit, std::uint64_t small,
                       const char* small_unit) {
    const std::string out = grouped(large) + unit;
    return small == 0 ? out : out + " " + std::to_string(small) + small_unit;
  };
  if (whole < 3600) return both(whole / 60, " min", whole % 60, " s");
  return both(whole / 3600, " h", whole / 60 % 60, " min");
}

std::string duration_text(Picos duration) {
  return duration.is_forever() ? "forever" : duration_text(duration.seconds());
}

std::string percent(double share) { return number_text(100 * share) + " %"; }

std::string scientific(double x) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1e", x);
  return text.data();
}

std::string grouped(std::uint64_t n) {
  std::string out = std::to_string(n);
  for (std::size_t i = out.size(); i > 3; i -= 3) out.insert(i - 3, ",");
  return out;
}

}  // namespace lockstep
