#include "reports/findings/csv_report.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "reports/csv_field.h"

namespace lockstep::reports {
namespace {

std::string rank_ranges(const std::vector<trace::Rank>& ranks) {
  std::vector<std::int32_t> numbers;
  for (const trace::Rank rank : ranks) numbers.push_back(rank.value);
  return ranges(numbers);
}

std::string location_in(const verify::Finding& finding) {
  const auto has_location = [](const verify::Evidence& evidence) { return !evidence.at.empty(); };
  const auto blamed = [&](const verify::Evidence& evidence) {
    return has_location(evidence) &&
           std::binary_search(finding.culprits.begin(), finding.culprits.end(), evidence.rank);
  };
  auto found = std::find_if(finding.evidence.begin(), finding.evidence.end(), blamed);
  if (found == finding.evidence.end())
    found = std::find_if(finding.evidence.begin(), finding.evidence.end(), has_location);
  return found == finding.evidence.end() ? "" : found->at;
}

std::string csv_row(const std::vector<std::string>& fields) {
  std::string out;
  for (const std::string& field : fields) out += (out.empty() ? "" : ",") + field;
  return out + "\r\n";
}

std::string csv_row(const verify::Finding& finding, std::string_view status) {
  std::string what;
  for (const std::string& name : finding.what) what += (what.empty() ? "" : " ") + name;
  return csv_row({std::string(verify::to_string(finding.severity)),
                  std::string(verify::rule(finding.rule).name),
                  std::string(verify::to_string(finding.certainty)), std::string(status),
                  csv_field(finding.group), finding.seq ? std::to_string(*finding.seq) : "",
                  finding.step ? std::to_string(*finding.step) : "",
                  csv_field(rank_ranges(finding.culprits)), csv_field(rank_ranges(finding.ranks)),
                  csv_field(what), csv_field(location_in(finding)), csv_field(finding.message),
                  csv_field(finding.fix), std::to_string(finding.consequences.size()),
                  csv_field(finding.fingerprint)});
}

}  // namespace

std::string csv_report(const FilteredReport& filtered) {
  std::string out =
      csv_row({"severity", "rule", "certainty", "status", "group", "seq", "step", "culprits",
               "ranks", "what", "at", "message", "fix", "consequences", "fingerprint"});
  for (const verify::Finding& finding : filtered.report.findings) out += csv_row(finding, "open");
  for (const SetAside& one : filtered.set_aside) out += csv_row(one.finding, to_string(one.why));
  return out;
}

}  // namespace lockstep::reports
