// The baseline file: the fingerprints of findings that are known. Later runs report only new ones.
#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <variant>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "base/tool_version.h"
#include "reports/filter/filter.h"
#include "reports/json_text.h"

namespace lockstep::reports {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFix = "write it again with --write-baseline";

// The location of a byte, whose number counts from 1 as in nlohmann's errors.
Location location_of(const std::string& text, std::size_t byte, const std::string& file) {
  const std::size_t end = std::min(byte == 0 ? 0 : byte - 1, text.size());
  const auto lines =
      std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end), '\n');
  const std::size_t newline = end == 0 ? std::string::npos : text.rfind('\n', end - 1);
  const std::size_t column = newline == std::string::npos ? end : end - newline - 1;
  return {file, static_cast<int>(lines) + 1, static_cast<int>(column) + 1};
}

}  // namespace

std::string baseline_text(const FilteredReport& filtered) {
  using Key = std::tuple<std::string, std::string>;  // rule, fingerprint: the order of the file
  std::map<Key, std::string> entries;
  // Findings that share a fingerprint are one entry.
  const auto add = [&](const verify::Finding& finding) {
    if (!finding.fingerprint.empty())
      entries.try_emplace({std::string(verify::rule(finding.rule).name), finding.fingerprint},
                          finding.message);
  };
  for (const verify::Finding& finding : filtered.report.findings) add(finding);
  for (const SetAside& one : filtered.set_aside)
    if (one.why == SetAside::Why::known) add(one.finding);
  // A line per entry, so that a change of the file is a change of lines.
  std::vector<std::string> lines;
  for (const auto& [key, message] : entries)
    lines.push_back(json_text(
        {{"fingerprint", std::get<1>(key)}, {"rule", std::get<0>(key)}, {"message", message}}));
  return fmt::format("{{\"lockstep_baseline\":1,\"tool\":{},\"findings\":[{}{}\n]}}\n",
                     json_text(std::string(tool_version())), lines.empty() ? "" : "\n",
                     fmt::join(lines, ",\n"));
}

Result<std::set<std::string, std::less<>>> parse_baseline(const std::string& text,
                                                          const std::string& file) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::parse_error& error) {
    return Error{"the baseline is not valid JSON", location_of(text, error.byte, file),
                 std::string(kFix)};
  } catch (const Json::exception&) {
    // Valid JSON that the parser cannot represent: a number beyond a double's range. The exception
    // has no position.
    return Error{
        "the baseline holds a number that is out of range", {file, 0, 0}, std::string(kFix)};
  }
  const auto refused = [&](const std::string& message) {
    return Error{message, {file, 0, 0}, std::string(kFix)};
  };
  if (!json.is_object() || !json.contains("lockstep_baseline"))
    return refused("this is not a baseline: the key \"lockstep_baseline\" is missing");
  if (json["lockstep_baseline"] != 1)
    return refused("this baseline's version is not 1; another version of lockstep wrote it");
  if (!json.contains("findings") || !json["findings"].is_array())
    return refused("the baseline's list \"findings\" is missing");
  std::set<std::string, std::less<>> out;
  for (std::size_t i = 0; i < json["findings"].size(); ++i) {
    const Json& entry = json["findings"][i];
    if (!entry.is_object() || !entry.contains("fingerprint") || !entry["fingerprint"].is_string() ||
        entry["fingerprint"] == "")
      return refused(fmt::format("finding {} of the baseline has no \"fingerprint\"", i + 1));
    out.insert(entry["fingerprint"].get<std::string>());
  }
  return out;
}

}  // namespace lockstep::reports
