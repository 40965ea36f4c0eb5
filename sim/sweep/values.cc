#include "sim/sweep/values.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "base/documents/yaml_document.h"
#include "base/text.h"

namespace lockstep::sim {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kLongestRange = 200;  // in characters
constexpr double kRounding = 1e-9;          // by which a range's last value may miss its end

// "25GB/s": a number, and what follows it.
struct Quantity {
  std::optional<std::int64_t> whole;
  double value = 0;
  std::string_view unit;
};

std::optional<Quantity> parse_quantity(std::string_view text) {
  const std::size_t digit = text.starts_with('-') ? 1 : 0;
  if (digit >= text.size() || text[digit] < '0' || text[digit] > '9') return std::nullopt;
  Quantity out;
  const char* const end = text.data() + text.size();
  const auto [after, failed] = std::from_chars(text.data(), end, out.value);
  if (failed != std::errc{} || !std::isfinite(out.value)) return std::nullopt;
  std::int64_t whole = 0;
  if (const auto exact = std::from_chars(text.data(), after, whole);
      exact.ec == std::errc{} && exact.ptr == after)
    out.whole = whole;
  out.unit = std::string_view(after, static_cast<std::size_t>(end - after));
  return out;
}

struct Range {
  Quantity first, last;
  bool geometric = false;
  Quantity by;  // the step, or the factor
};

Error no_range(std::string_view text, const std::string& why) {
  return {"\"" + printable(text) + "\" is no range: " + why,
          {},
          "write 2..16*2 (2, 4, 8, 16) or 2..8+3 (2, 5, 8)"};
}

// Nothing where the text is no range at all: what is before the dots is no number.
Result<std::optional<Range>> parse_range(std::string_view text) {
  const std::size_t dots = text.find("..");
  if (dots == std::string_view::npos || text.size() > kLongestRange) return std::optional<Range>();
  const auto first = parse_quantity(text.substr(0, dots));
  if (!first) return std::optional<Range>();
  std::string_view rest = text.substr(dots + 2);
  Range out{*first, {}, false, {1, 1, {}}};
  std::size_t sign = rest.rfind('*');
  out.geometric = sign != std::string_view::npos;
  if (!out.geometric) {
    sign = rest.rfind('+');
    if (sign != std::string_view::npos && sign > 0 && (rest[sign - 1] | 0x20) == 'e')
      sign = std::string_view::npos;  // of an exponent: 1e+3
  }
  if (sign != std::string_view::npos) {
    const auto by = parse_quantity(rest.substr(sign + 1));
    if (!by) return no_range(text, "behind the sign should be a number");
    out.by = *by;
    rest = rest.substr(0, sign);
  } else if (!first->whole) {
    return no_range(text, "numbers with a fraction need a step or a factor");
  }
  const auto last = parse_quantity(rest);
  if (!last) return no_range(text, "behind the dots should be a number");
  out.last = *last;
  if (out.last.unit != out.first.unit) return no_range(text, "its ends have different units");
  if (!out.by.unit.empty() && (out.geometric || out.by.unit != out.first.unit))
    return no_range(text, "its step has another unit than its ends");
  if (out.last.value < out.first.value) return no_range(text, "it ends before it begins");
  if (out.geometric && (out.by.value <= 1 || out.first.value <= 0))
    return no_range(text, "it should begin above 0, and its factor be above 1");
  if (!out.geometric && out.by.value <= 0) return no_range(text, "its step should be above 0");
  return std::optional(out);
}

// Nothing where there are more than kMostValues.
std::optional<std::vector<std::int64_t>> whole_values(std::int64_t first, std::int64_t last,
                                                      std::int64_t by, bool geometric) {
  std::vector<std::int64_t> out = {first};
  while (true) {
    const std::int64_t at = out.back();
    // Asked so that nothing overflows.
    const bool over = geometric
                          ? at > last / by
                          : static_cast<std::uint64_t>(last) - static_cast<std::uint64_t>(at) <
                                static_cast<std::uint64_t>(by);
    if (over) return out;
    if (out.size() == kMostValues) return std::nullopt;
    out.push_back(geometric ? at * by : at + by);
  }
}

std::optional<std::vector<double>> real_values(double first, double last, double by,
                                               bool geometric) {
  std::vector<double> out;
  const double end = last + kRounding * (geometric ? last : by);
  for (std::size_t i = 0;; ++i) {
    const auto times = static_cast<double>(i);
    const double value = geometric ? first * std::pow(by, times) : first + by * times;
    if (!(value <= end)) return out;
    if (i == kMostValues) return std::nullopt;
    out.push_back(value);
  }
}

// Twelve digits: 0.1 · 3 is to be 0.3.
std::string short_number(double value) {
  std::array<char, 40> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 std::chars_format::general, 12);
  return {buffer.data(), end.ptr};
}

double rounded(double value) {
  const std::string text = short_number(value);
  double out = value;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

Error too_many(std::string_view what) {
  return {"\"" + printable(what) + "\" has more than " + std::to_string(kMostValues) + " values",
          {},
          "take a larger step"};
}

Result<std::vector<Json>> values_of(const Range& range, std::string_view text) {
  std::vector<Json> out;
  const std::string unit(range.first.unit);
  const auto add = [&](const auto& values, const auto& number, const auto& word) {
    for (const auto value : values)
      out.push_back(unit.empty() ? Json(number(value)) : Json(word(value) + unit));
  };
  if (range.first.whole && range.last.whole && range.by.whole) {
    const auto values =
        whole_values(*range.first.whole, *range.last.whole, *range.by.whole, range.geometric);
    if (!values) return too_many(text);
    add(
        *values, [](std::int64_t v) { return v; },
        [](std::int64_t v) { return std::to_string(v); });
    return out;
  }
  const auto values =
      real_values(range.first.value, range.last.value, range.by.value, range.geometric);
  if (!values) return too_many(text);
  add(*values, rounded, short_number);
  return out;
}

}  // namespace

Result<std::vector<Json>> expand_values(const Json& list) {
  std::vector<Json> out;
  for (const Json& item : list) {
    Result<std::optional<Range>> range =
        item.is_string() ? parse_range(item.get_ref<const std::string&>()) : std::optional<Range>();
    if (!range) return range.error();
    if (*range) {
      Result<std::vector<Json>> values = values_of(**range, item.get_ref<const std::string&>());
      if (!values) return values.error();
      out.insert(out.end(), values->begin(), values->end());
    } else {
      out.push_back(item);
    }
    if (out.size() > kMostValues) return too_many("the list");
  }
  if (out.empty()) return Error{"there is no value", {}, "write KEY=VALUE,VALUE"};
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (std::find(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(i), out[i]) !=
        out.begin() + static_cast<std::ptrdiff_t>(i))
      return Error{"the value " + printable(value_text(out[i])) + " is given twice", {}, ""};
  }
  return out;
}

Result<std::vector<Json>> parse_values(const std::string& text) {
  const Result<YamlDocument> document = parse_yaml("[" + text + "]", "");
  if (!document || !document->value.is_array()) {
    const std::string why = document ? "" : ": " + document.error().message;
    return Error{"\"" + printable(text.substr(0, 60)) + "\" is no list of values" + why,
                 {},
                 "write values with commas between them, and quotes around what has some itself"};
  }
  return expand_values(document->value);
}

std::string value_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace lockstep::sim
