// What sets findings aside.
#include <string>
#include <utility>

#include "base/check.h"
#include "reports/filter/filter.h"
#include "tests/fuzz/targets.h"
#include "trace/run.h"
#include "verify/report.h"

namespace lockstep {

// Any bytes as a suppressions file. What was read can be matched against findings.
void fuzz_suppressions(std::string_view bytes) {
  auto suppressions = reports::parse_suppressions(std::string(bytes), "fuzz.yaml");
  if (!suppressions) {
    LOCKSTEP_CHECK(!suppressions.error().message.empty(), "an error says what is wrong");
    return;
  }
  verify::Finding finding;
  finding.group = "world";
  finding.what = {"image.proj.weight", "image.proj.bias"};
  finding.culprits = {trace::Rank(1)};
  for (reports::Suppression& suppression : *suppressions) {
    LOCKSTEP_CHECK(!suppression.reason.empty(), "every suppression has its reason");
    finding.rule = suppression.rule;
    reports::matches(suppression, finding);
  }
  verify::Report report;
  report.findings.push_back(std::move(finding));
  reports::Filter filter;
  filter.suppressions = std::move(*suppressions);
  reports::filtered(std::move(report), trace::Run{}, filter,
                    std::chrono::sys_days(std::chrono::days(20000)));
}

// Any bytes as a baseline file: an error, or fingerprints.
void fuzz_baseline(std::string_view bytes) {
  const auto known = reports::parse_baseline(std::string(bytes), "fuzz.json");
  if (!known) {
    LOCKSTEP_CHECK(!known.error().message.empty(), "an error says what is wrong");
    return;
  }
  for (const std::string& fingerprint : *known) {
    LOCKSTEP_CHECK(!fingerprint.empty(), "a fingerprint is a text");
  }
}

}  // namespace lockstep
