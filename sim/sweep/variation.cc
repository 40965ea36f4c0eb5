#include "sim/sweep/variation.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/documents/yaml_document.h"
#include "base/numbers.h"
#include "base/tables.h"
#include "base/text.h"

namespace lockstep::sim {
namespace {

using Json = nlohmann::json;

// True if `key` is `whole` or inside it: "train.batch_size" is in "train".
bool is_in(std::string_view key, std::string_view whole) {
  return key == whole || (key.starts_with(whole) && key[whole.size()] == '.');
}

Error of_axis(const Axis& axis, const Json& value, Error error) {
  constexpr std::size_t kShown = 120;
  error.message = fmt::format(
      "{}: {}", shorten_end(printable(fmt::format("{}={}", axis.key, value_text(value))), kShown),
      error.message);
  error.location = axis.location;
  return error;
}

Status check_twice(const std::vector<Axis>& axes) {
  for (std::size_t i = 0; i < axes.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (axes[i].key == axes[j].key)
        return Error{fmt::format("\"{}\" is varied twice", printable(axes[i].key)),
                     axes[i].location,
                     fmt::format("give all its values at once: {}=…,…", printable(axes[i].key))};
  return Status::ok();
}

// Sorts keys after those that they are inside, so that the whole is set before its part.
std::vector<Axis> outer_first(const std::vector<Axis>& axes) {
  std::vector<Axis> out;
  for (const Axis& axis : axes) {
    const auto inner = std::find_if(out.begin(), out.end(),
                                    [&](const Axis& other) { return is_in(other.key, axis.key); });
    out.insert(inner, axis);
  }
  return out;
}

// The axis's key in the document that it changes.
std::string own_key(const Axis& axis, const MachineKeys* of_machine) {
  if (of_machine == nullptr) return axis.key;
  std::string key = axis.key.substr(of_machine->prefix.size());
  const auto& inner = of_machine->in_section;
  const bool short_name = std::find(inner.begin(), inner.end(), key) != inner.end();
  return short_name ? fmt::format("{}.{}", of_machine->section, key) : key;
}

// The error of a key that no machine file has, with the section's key that may be meant.
Error with_short_name(Error error, const std::string& key, const MachineKeys& keys) {
  if (!error.message.starts_with("unknown key") || key.find('.') != std::string::npos) return error;
  if (const std::string near = nearest(key, keys.in_section); !near.empty())
    error.message = fmt::format("unknown key \"{}{}\"; did you mean \"{}{}\"?", keys.prefix,
                                printable(key), keys.prefix, near);
  return error;
}

Status check_values(const Variation::Document& whole, const std::vector<Axis>& axes,
                    const MachineKeys* of_machine) {
  Json document = whole.value;
  for (const Axis& axis : axes) {
    // The first values of earlier axes stay set, so that a key can depend on them: `strategy`
    // before `strategy.shard_ranks`.
    std::optional<Json> next;
    for (const Json& value : axis.values) {
      Result<Json> changed = with_value(document, own_key(axis, of_machine), value);
      if (!changed) return of_axis(axis, value, changed.error());
      if (std::optional<Error> wrong = whole.check(*changed))
        return of_axis(axis, value,
                       of_machine == nullptr
                           ? *wrong
                           : with_short_name(*wrong, own_key(axis, of_machine), *of_machine));
      if (!next) next = std::move(*changed);
    }
    document = std::move(*next);
  }
  return Status::ok();
}

std::vector<std::size_t> sizes_of(const std::vector<Axis>& axes) {
  std::vector<std::size_t> out;
  out.reserve(axes.size());
  for (const Axis& axis : axes) out.push_back(axis.values.size());
  return out;
}

// `digits`: those of the axes begin at index `first`.
Result<Json> with_values(Json document, const std::vector<Axis>& axes, const Digits& digits,
                         std::size_t first, const MachineKeys* of_machine) {
  for (std::size_t i = 0; i < axes.size(); ++i) {
    Result<Json> changed = with_value(std::move(document), own_key(axes[i], of_machine),
                                      axes[i].values[digits[first + i]]);
    if (!changed) return changed;
    document = std::move(*changed);
  }
  return document;
}

}  // namespace

Result<Axis> parse_axis(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    return Error{fmt::format("\"{}\" should be KEY=VALUE,VALUE", printable(text)),
                 {},
                 "write train.batch_size=8,16 or ranks=2..16*2"};
  // A bounded key bounds the depth of the walk through the document.
  if (equals > kLongestKey || !is_utf8(text.substr(0, equals)))
    return Error{fmt::format("a key is UTF-8 text of at most {} bytes", kLongestKey),
                 {},
                 "`lockstep scenario --schema` has all keys"};
  Axis out{text.substr(0, equals), {}, {}};
  Result<std::vector<Json>> values = parse_values(text.substr(equals + 1));
  if (!values) {
    Error error = values.error();
    error.message = fmt::format("{}: {}", printable(out.key), error.message);
    return error;
  }
  out.values = std::move(*values);
  return out;
}

Result<Variation> Variation::make(Subject subject, const std::vector<Axis>& axes) {
  LOCKSTEP_CHECK(!subject.machines.empty(), "a sweep needs a machine");
  if (const Status ok = check_twice(axes); !ok) return ok.error();
  std::vector<Axis> of_job, of_machine;
  for (const Axis& axis : axes)
    (axis.key.starts_with(subject.machine_keys.prefix) ? of_machine : of_job).push_back(axis);
  for (const Axis& axis : of_job) {
    if (std::optional<Error> refused = subject.refuses(axis.key)) {
      refused->location = axis.location;
      return *refused;
    }
  }
  of_job = outer_first(of_job);
  of_machine = outer_first(of_machine);
  if (const Status ok = check_values(subject.job, of_job, nullptr); !ok) return ok.error();
  for (const Document& machine : subject.machines)
    if (const Status ok = check_values(machine, of_machine, &subject.machine_keys); !ok)
      return ok.error();

  std::vector<std::size_t> machine_sizes = sizes_of(of_machine);
  // The machine's file is an axis, too: the first of the machine's.
  machine_sizes.insert(machine_sizes.begin(), subject.machines.size());
  std::vector<std::size_t> sizes = sizes_of(of_job);
  sizes.insert(sizes.end(), machine_sizes.begin(), machine_sizes.end());
  std::optional<Grid> grid = Grid::of(std::move(sizes));
  if (!grid) return Error{"this grid has more points than can be counted", {}, "vary less at once"};
  Variation out(std::move(*grid), std::move(subject));
  out.job_axes_ = std::move(of_job);
  out.machine_axes_ = std::move(of_machine);
  out.machine_points_ = Grid::of(machine_sizes)->size();
  return out;
}

std::vector<std::string> Variation::keys() const {
  std::vector<std::string> out;
  for (const Axis& axis : job_axes_) out.push_back(axis.key);
  for (const Axis& axis : machine_axes_) out.push_back(axis.key);
  return out;
}

nlohmann::ordered_json Variation::values(PointId point) const {
  const Digits digits = grid_.digits(point);
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  for (std::size_t i = 0; i < job_axes_.size(); ++i)
    out[job_axes_[i].key] = job_axes_[i].values[digits[i]];
  for (std::size_t i = 0; i < machine_axes_.size(); ++i)
    out[machine_axes_[i].key] = machine_axes_[i].values[digits[job_axes_.size() + 1 + i]];
  return out;
}

const std::string& Variation::machine_file(PointId point) const {
  return subject_.machines[grid_.digits(point)[job_axes_.size()]].file;
}

Result<Json> Variation::job_document(PointId point) const {
  return with_values(subject_.job.value, job_axes_, grid_.digits(point), 0, nullptr);
}

Result<Json> Variation::machine_document(PointId point) const {
  const Digits digits = grid_.digits(point);
  const std::size_t machine = job_axes_.size();
  return with_values(subject_.machines[digits[machine]].value, machine_axes_, digits, machine + 1,
                     &subject_.machine_keys);
}

std::vector<std::string> key_parts(const std::string& key) {
  std::vector<std::string> out(1);
  for (const char c : key) {
    if (c == '.')
      out.emplace_back();
    else
      out.back() += c;
  }
  return out;
}

Result<Json> with_value(Json document, const std::string& key, const Json& value) {
  Json* at = &document;
  std::string walked;
  for (const std::string& part : key_parts(key)) {
    if (at->is_array()) {
      const auto index = parse_number<std::size_t>(part);
      if (!index || *index >= at->size())
        return Error{fmt::format("\"{}\" is a list of {}, which has no \"{}\"", printable(walked),
                                 plural(at->size(), "element"), printable(part)),
                     {},
                     "its elements are counted from 0"};
      at = &(*at)[*index];
    } else {
      // A name alone, as in `strategy: ddp`, is short for a mapping with this kind or name.
      if (at->is_string() && (walked == "strategy" || walked == "remedy")) *at = {{"kind", *at}};
      if (at->is_string() && walked == "model") *at = {{"name", *at}};
      if (!at->is_object()) *at = Json::object();
      at = &(*at)[part];
    }
    walked += (walked.empty() ? "" : ".") + part;
  }
  *at = value;
  return document;
}

namespace {

using Json = nlohmann::json;

constexpr std::size_t kLongestRange = 200;  // in characters
constexpr double kRangeRounding = 1e-9;     // by how much a range's last value may miss its end

// "25GB/s": a number and its unit.
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
  Quantity by;  // the step or factor
};

Error no_range(std::string_view text, const std::string& why) {
  return {fmt::format("\"{}\" is not a range: {}", printable(text), why),
          {},
          "write 2..16*2 (2, 4, 8, 16) or 2..8+3 (2, 5, 8)"};
}

// Empty if the text is not a range: what precedes the dots is not a number. "a..b" is then a text.
Result<std::optional<Range>> parse_range(std::string_view text) {
  const std::size_t dots = text.find("..");
  if (dots == std::string_view::npos || text.size() > kLongestRange) return std::optional<Range>();
  const auto first = parse_quantity(text.substr(0, dots));
  if (!first) return std::optional<Range>();
  std::string_view rest = text.substr(dots + 2);
  Range out{*first, {}, false, {1, 1, {}}};
  // From the right: "1..1e+3+1" has its step after the last sign.
  std::size_t sign = rest.rfind('*');
  out.geometric = sign != std::string_view::npos;
  if (!out.geometric) {
    sign = rest.rfind('+');
    if (sign != std::string_view::npos && sign > 0 && (rest[sign - 1] | 0x20) == 'e')
      sign = std::string_view::npos;  // of an exponent: 1e+3
  }
  if (sign != std::string_view::npos) {
    const auto by = parse_quantity(rest.substr(sign + 1));
    if (!by) return no_range(text, "after the sign there should be a number");
    out.by = *by;
    rest = rest.substr(0, sign);
  } else if (!first->whole) {
    return no_range(text, "numbers with a fraction need a step or a factor");
  }
  const auto last = parse_quantity(rest);
  if (!last) return no_range(text, "after the dots there should be a number");
  out.last = *last;
  if (out.last.unit != out.first.unit) return no_range(text, "its ends have different units");
  if (!out.by.unit.empty() && (out.geometric || out.by.unit != out.first.unit))
    return no_range(text, "its step has another unit than its ends");
  if (out.last.value < out.first.value) return no_range(text, "it ends before it starts");
  if (out.geometric && (out.by.value <= 1 || out.first.value <= 0))
    return no_range(text, "it should start above 0, and its factor be above 1");
  if (!out.geometric && out.by.value <= 0) return no_range(text, "its step should be above 0");
  return std::optional(out);
}

// Empty if there are more than kMaxValues.
std::optional<std::vector<std::int64_t>> whole_values(std::int64_t first, std::int64_t last,
                                                      std::int64_t by, bool geometric) {
  std::vector<std::int64_t> out = {first};
  while (true) {
    const std::int64_t at = out.back();
    // Compared without overflow.
    const bool over = geometric
                          ? at > last / by
                          : static_cast<std::uint64_t>(last) - static_cast<std::uint64_t>(at) <
                                static_cast<std::uint64_t>(by);
    if (over) return out;
    if (out.size() == kMaxValues) return std::nullopt;
    out.push_back(geometric ? at * by : at + by);
  }
}

std::optional<std::vector<double>> real_values(double first, double last, double by,
                                               bool geometric) {
  std::vector<double> out;
  const double end = last + kRangeRounding * (geometric ? last : by);
  for (std::size_t i = 0;; ++i) {
    const auto times = static_cast<double>(i);
    // Each value from the first one, not from the one before: rounding errors do not add up.
    const double value = geometric ? first * std::pow(by, times) : first + by * times;
    if (!(value <= end)) return out;
    if (i == kMaxValues) return std::nullopt;
    out.push_back(value);
  }
}

// Twelve digits: 0.1 · 3 becomes 0.3.
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
  return {fmt::format("\"{}\" has more than {} values", printable(what), kMaxValues),
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
    if (out.size() > kMaxValues) return too_many("the list");
  }
  if (out.empty()) return Error{"there is no value", {}, "write KEY=VALUE,VALUE"};
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (std::find(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(i), out[i]) !=
        out.begin() + static_cast<std::ptrdiff_t>(i))
      return Error{fmt::format("the value {} is given twice", printable(value_text(out[i]))),
                   {},
                   "give each value once; ranges have those between their ends, too"};
  }
  return out;
}

Result<std::vector<Json>> parse_values(const std::string& text) {
  // As the list in YAML brackets, values may be anything that YAML has.
  const Result<YamlDocument> document = parse_yaml(fmt::format("[{}]", text), "");
  if (!document || !document->value.is_array()) {
    const std::string why = document ? "" : fmt::format(": {}", document.error().message);
    return Error{
        fmt::format("\"{}\" is not a list of values{}", printable(text.substr(0, 60)), why),
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
