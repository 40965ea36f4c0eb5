// Findings as CSV: one row each.
#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/text.h"
#include "reports/findings/reports.h"
#include "reports/table.h"

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

void add_row(Table& table, const verify::Finding& finding, std::string_view status) {
  const auto number = [](const auto& value) { return value ? fmt::format("{}", *value) : ""; };
  table.add({std::string(verify::to_string(finding.severity)),
             std::string(verify::rule(finding.rule).name),
             std::string(verify::to_string(finding.certainty)), std::string(status), finding.group,
             number(finding.seq), number(finding.step), rank_ranges(finding.culprits),
             rank_ranges(finding.ranks), fmt::format("{}", fmt::join(finding.what, " ")),
             location_in(finding), finding.message, finding.fix,
             fmt::format("{}", finding.consequences.size()), finding.fingerprint,
             finding.group_label, number(finding.number), finding.headline, finding.next});
}

}  // namespace

std::string csv_report(const FilteredReport& filtered) {
  Table table({{"severity"},
               {"rule"},
               {"certainty"},
               {"status"},
               {"group"},
               {"seq", Column::number},
               {"step", Column::number},
               {"culprits"},
               {"ranks"},
               {"what"},
               {"at"},
               {"message"},
               {"fix"},
               {"consequences", Column::number},
               {"fingerprint"},
               {"group_label"},
               {"number", Column::number},
               {"headline"},
               {"next"}});
  for (const verify::Finding& finding : filtered.report.findings) add_row(table, finding, "open");
  for (const SetAside& one : filtered.set_aside) add_row(table, one.finding, to_string(one.why));
  return table.csv();
}

}  // namespace lockstep::reports
