#include "base/quantities.h"

#include <array>
#include <charconv>
#include <span>
#include <utility>

#include "base/text.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

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

bool is_digit(char c) { return c >= '0' && c <= '9'; }

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
    if (number.digits > (kMost - digit) / 10) {
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
  if (factor != 0 && number.digits > (kMost - 1) / factor)
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
  for (;;) {
    const std::size_t comma = text.find(',');
    Result<Value> value = parse_one(text.substr(0, comma));
    if (!value) return value.error();
    values.push_back(*value);
    if (comma == std::string_view::npos) return values;
    text.remove_prefix(comma + 1);
  }
}

// value / factor with all its decimals; factor is a power of ten.
std::string exact(std::int64_t value, std::int64_t factor) {
  std::string out = std::to_string(value / factor);
  std::int64_t rest = value % factor;
  if (rest == 0) return out;
  out += '.';
  while (rest != 0) {
    factor /= 10;
    out += static_cast<char>('0' + rest / factor);
    rest %= factor;
  }
  return out;
}

struct Scale {
  std::string_view name;
  std::int64_t factor;
};

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

std::string to_string(Picos duration) {
  static constexpr std::array kScales = {
      Scale{"s", 1'000'000'000'000},
      Scale{"ms", 1'000'000'000},
      Scale{"us", 1'000'000},
      Scale{"ns", 1'000},
      Scale{"ps", 1},
  };
  if (duration.is_forever()) return "forever";
  for (const Scale& scale : kScales) {
    if (duration.value >= scale.factor)
      return exact(duration.value, scale.factor) + " " + std::string(scale.name);
  }
  return "0 ps";
}

std::string to_string(Bandwidth bandwidth) {
  // An eighth has three decimals: bits · 125 are thousandths of a byte.
  static constexpr std::array kScales = {
      Scale{"TB/s", 1'000'000'000'000'000},
      Scale{"GB/s", 1'000'000'000'000},
      Scale{"MB/s", 1'000'000'000},
      Scale{"kB/s", 1'000'000},
      Scale{"B/s", 1'000},
  };
  // The product below would overflow.
  if (bandwidth.bits_per_second > kMost / 125)
    return std::to_string(bandwidth.bits_per_second) + " b/s";
  const std::int64_t thousandths = bandwidth.bits_per_second * 125;
  for (const Scale& scale : kScales) {
    if (thousandths >= scale.factor)
      return exact(thousandths, scale.factor) + " " + std::string(scale.name);
  }
  return std::to_string(bandwidth.bits_per_second) + " b/s";
}

}  // namespace lockstep
