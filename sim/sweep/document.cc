#include "sim/sweep/document.h"

#include <charconv>
#include <optional>

#include "base/text.h"

namespace lockstep::sweep {
namespace {

using Json = nlohmann::json;

std::optional<std::size_t> parse_number(const std::string& text) {
  std::size_t out = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (failed != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return out;
}

}  // namespace

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
      const auto index = parse_number(part);
      if (!index || *index >= at->size())
        return Error{"\"" + printable(walked) + "\" is a list of " + plural(at->size(), "element") +
                         ", which has no \"" + printable(part) + "\"",
                     {},
                     "its elements are counted from 0"};
      at = &(*at)[*index];
    } else {
      // A name alone, as in `strategy: ddp`, stands for a mapping with that kind, or that name.
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

}  // namespace lockstep::sweep
