// Any bytes as a suppressions file. What was read can be matched against findings.
#include <string>
#include <utility>

#include "base/check.h"
#include "reports/filter/suppressions.h"
#include "tests/fuzz/targets.h"
#include "trace/run.h"
#include "verify/report.h"

namespace lockstep {

void fuzz_suppressions(std::string_view bytes) {
  auto suppressions = parse_suppressions(std::string(bytes), "fuzz.yaml");
  if (!suppressions) {
    LOCKSTEP_CHECK(!suppressions.error().message.empty(), "an error says what is wrong");
    return;
  }
  Finding finding;
  finding.group = "world";
  finding.what = {"image.proj.weight", "image.proj.bias"};
  finding.culprits = {Rank(1)};
  for (Suppression& suppression : *suppressions) {
    LOCKSTEP_CHECK(!suppression.reason.empty(), "every suppression has its reason");
    finding.rule = suppression.rule;
    matches(suppression, finding);
  }
  Report report;
  report.findings.push_back(std::move(finding));
  Filter filter;
  filter.suppressions = std::move(*suppressions);
  filtered(std::move(report), Run{}, filter, std::chrono::sys_days(std::chrono::days(20000)));
}

}  // namespace lockstep
