#include <nlohmann/json.hpp>

#include "base/text.h"
#include "reports/ci/ci_reports.h"
#include "reports/findings/finding_words.h"
#include "reports/json_text.h"

namespace lockstep::reports {
namespace {

using Json = nlohmann::ordered_json;

// Of info, minor, major, critical, blocker.
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

Json location(const verify::Finding& finding, std::string_view root) {
  const auto source = location_of(finding, root);
  return {{"path", source ? source->file : "unknown"},
          {"lines", {{"begin", source ? source->line : 1}}}};
}

}  // namespace

std::string gitlab_report(const FilteredReport& filtered, std::string_view root) {
  Json out = Json::array();
  UniqueFingerprints fingerprints;
  for (const verify::Finding& finding : filtered.report.findings) {
    Json one;
    one["description"] = printable(finding.message);
    one["check_name"] = verify::rule(finding.rule).name;
    one["fingerprint"] = fingerprints.next(finding);
    one["severity"] = severity_name(finding.severity);
    one["location"] = location(finding, root);
    out.push_back(std::move(one));
  }
  return json_text(out) + "\n";
}

}  // namespace lockstep::reports
