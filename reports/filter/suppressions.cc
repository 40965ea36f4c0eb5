// The suppressions file: findings that are accepted until a date, as a YAML list.
#include <algorithm>
#include <cstddef>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/documents/schema_check.h"
#include "base/documents/yaml_document.h"
#include "base/text.h"
#include "reports/filter/filter.h"
#include "verify/rules/rules.h"

namespace lockstep::reports {
namespace {

constexpr std::size_t kMaxBytes = 1 << 20;

// True for a file of blank lines, comments and "---": valid, but to YAML an empty document, which
// the parser refuses.
bool has_no_entries(std::string_view text) {
  while (!text.empty()) {
    const std::string_view line = take_until(text, '\n');
    const std::size_t first = line.find_first_not_of(" \t\r");
    if (first != kNpos && line[first] != '#' && line.substr(first, 3) != "---") return false;
  }
  return true;
}

std::vector<std::string> one_or_more(const nlohmann::json& entry, const char* key) {
  if (!entry.contains(key)) return {};
  if (entry[key].is_string()) return {entry[key].get<std::string>()};
  return entry[key].get<std::vector<std::string>>();
}

std::vector<trace::Rank> ranks_of(const nlohmann::json& entry) {
  std::vector<trace::Rank> out;
  if (!entry.contains("ranks")) return out;
  for (const nlohmann::json& rank : entry["ranks"]) out.emplace_back(rank.get<std::int32_t>());
  std::sort(out.begin(), out.end());
  return out;
}

// Reads the entry at a JSON pointer, which the schema has accepted.
Result<Suppression> suppression(const nlohmann::json& entry, const YamlDocument& document,
                                const std::string& pointer) {
  Suppression out;
  const Result<verify::RuleId> rule =
      verify::rule_named(entry["rule"].get_ref<const std::string&>());
  if (!rule)
    return Error{rule.error().message, document.value_location(pointer + "/rule"),
                 rule.error().fix};
  out.rule = *rule;
  if (entry.contains("group")) out.group = entry["group"].get<std::string>();
  out.what = one_or_more(entry, "what");
  out.at = one_or_more(entry, "at");
  out.ranks = ranks_of(entry);
  out.reason = entry["reason"].get<std::string>();
  const auto& expires = entry["expires"].get_ref<const std::string&>();
  if (expires != "never") {
    out.last_day = parse_date(expires);
    if (!out.last_day)
      return Error{
          fmt::format("\"expires\" is not a date: \"{}\"", printable(expires.substr(0, 60))),
          document.value_location(pointer + "/expires"),
          "write a day that exists as 2026-12-31, or never"};
  }
  out.location = document.value_location(pointer);
  return out;
}

}  // namespace

Result<std::vector<Suppression>> parse_suppressions(const std::string& text,
                                                    const std::string& file) {
  const std::string fix = "a suppressions file is a YAML list; docs/reports.md describes it";
  if (text.size() > kMaxBytes) return Error{"the file is larger than 1 MiB", {file, 0, 0}, fix};
  if (printable(text).find("\uFFFD") != std::string::npos)
    return Error{"the file is not UTF-8 text", {file, 0, 0}, fix};
  if (has_no_entries(text)) return std::vector<Suppression>{};
  Result<YamlDocument> document = parse_yaml(text, file);
  if (!document) {
    Error error = document.error();
    error.fix = fix;  // the parser's own fixes are about scenarios
    return error;
  }
  if (auto wrong =
          check_against_schema(*document, nlohmann::json::parse(suppressions_schema()), fix))
    return *wrong;
  std::vector<Suppression> out;
  for (std::size_t i = 0; i < document->value.size(); ++i) {
    Result<Suppression> one = suppression(document->value[i], *document, fmt::format("/{}", i));
    if (!one) return one.error();
    out.push_back(std::move(*one));
  }
  return out;
}

}  // namespace lockstep::reports
