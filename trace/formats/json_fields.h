// Members of JSON objects that simdjson has parsed.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/numbers.h"

namespace lockstep::trace {

// A whole number, or a string that holds one ("745"), as protobuf's JSON has 64-bit numbers.
inline std::optional<std::int64_t> json_integer(const simdjson::dom::element& element) {
  std::int64_t out = 0;
  if (element.get(out) == simdjson::SUCCESS) return out;
  std::string_view text;
  if (element.get(text) != simdjson::SUCCESS) return std::nullopt;
  return parse_number<std::int64_t>(text);
}

inline std::optional<std::int64_t> json_integer(const simdjson::dom::object& object,
                                                std::string_view key) {
  simdjson::dom::element element;
  if (object.at_key(key).get(element) != simdjson::SUCCESS) return std::nullopt;
  return json_integer(element);
}

// Nothing where the member is not a string. The text belongs to the parser.
inline std::optional<std::string_view> json_text(const simdjson::dom::object& object,
                                                 std::string_view key) {
  std::string_view out;
  if (object.at_key(key).get(out) != simdjson::SUCCESS) return std::nullopt;
  return out;
}

}  // namespace lockstep::trace
