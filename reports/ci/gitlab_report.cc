// Findings as GitLab's code quality report: a JSON list with one location per finding.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "reports/ci/ci_reports.h"
#include "reports/findings/finding_words.h"
#include "reports/json_text.h"

namespace lockstep::reports {
namespace {

using Json = nlohmann::ordered_json;

// GitLab knows info, minor, major, critical and blocker.
std::string_view severity_name(verify::Severity severity) {
  switch (severity) {
    case verify::Severity::error:
      return "critical";
    case verify::Severity::warning:
      return "major";
    case verify::Severity::note:
      return "info";
  }
  return "info";
}

// GitLab shows one line per finding, and no field but the rule's: who and where stand in it.
std::string description(const verify::Finding& finding) {
  std::string out = summary_of(finding);
  std::string details;
  for (const std::string& words : {who_in_words(finding), where_in_words(finding)})
    if (!words.empty()) details.append(details.empty() ? "" : "; ").append(words);
  for (const std::string& other : also_in_words(finding))
    details.append(details.empty() ? "" : "; ").append("also ").append(other);
  if (!details.empty()) out += fmt::format(" ({})", details);
  if (!finding.next.empty()) out += fmt::format("; next: {}", finding.next);
  return printable(out);
}

}  // namespace

std::string gitlab_report(const FilteredReport& filtered, const Locator& locator) {
  Json out = Json::array();
  UniqueFingerprints fingerprints;
  for (const verify::Finding& finding : filtered.report.findings) {
    Json one;
    one["description"] = description(finding);
    one["check_name"] = verify::rule(finding.rule).name;
    one["fingerprint"] = fingerprints.next(finding);
    one["severity"] = severity_name(finding.severity);
    const SourceLocation at = locator.of(finding);
    one["location"] = {{"path", at.file}, {"lines", {{"begin", at.line}}}};
    out.push_back(std::move(one));
  }
  return fmt::format("{}\n", json_text(out));
}

}  // namespace lockstep::reports
