// Any bytes as the traces of several ranks, separated by blank lines: whatever was read can be
// judged, finished or live, and reported in every form.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/check.h"
#include "reports/ci/ci_reports.h"
#include "reports/filter/filter.h"
#include "reports/findings/reports.h"
#include "reports/findings/timeline_report.h"
#include "tests/fuzz/fuzz_format.h"
#include "tests/fuzz/targets.h"
#include "trace/formats/format.h"
#include "trace/formats/text/text_trace.h"
#include "trace/load.h"
#include "verify/verify.h"

namespace lockstep {

void fuzz_verify(std::string_view bytes) {
  constexpr std::size_t kMaxRanks = 8;
  constexpr std::int32_t kLargestWorld = 256;  // missing ranks cost time, and nothing else
  trace::Tables tables;
  std::vector<trace::RankTrace> traces;
  for (std::size_t n = 0; n < kMaxRanks && !bytes.empty(); ++n) {
    const std::size_t end = std::min(bytes.find("\n\n"), bytes.size());
    Result<trace::RankTrace> trace = trace::read_text_trace(bytes.substr(0, end), "fuzz", tables);
    if (trace) traces.push_back(std::move(*trace));
    bytes.remove_prefix(std::min(end + 2, bytes.size()));
  }
  trace::text_format().link(traces, tables);
  const trace::Run run = trace::assemble_run(std::move(tables), std::move(traces));
  if (run.world_size > kLargestWorld) return;
  verify::verify(run, {.live = true});
  const reports::FilteredReport report(verify::verify(run));
  for (const verify::Finding& finding : report.report.findings)
    LOCKSTEP_CHECK(verify::rule(finding.rule).certainties.has(finding.certainty),
                   "as the rule table says");
  check_text(reports::json_report(report));
  check_text(reports::text_report(report, run));
  check_text(reports::sarif_report(report));
  check_text(reports::junit_report(report));
  check_text(reports::markdown_report(report, run));
  check_text(reports::gitlab_report(report));
  check_text(reports::html_report(report, run));
  check_text(reports::timeline_report(report, run));
  check_text(reports::dot_report(report, run));
  check_text(reports::csv_report(report));
  reports::github_report(report);  // empty where there is nothing to say
}

}  // namespace lockstep
