#include "reports/exit_status.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/terminal.h"

namespace lockstep::reports {
namespace {

// The values of --fail-on, and the lowest severity that gives exit status 1.
std::optional<verify::Severity> threshold(std::string_view fail_on) {
  if (fail_on == "error") return verify::Severity::error;
  if (fail_on == "warning") return verify::Severity::warning;
  if (fail_on == "note") return verify::Severity::note;
  return std::nullopt;
}

}  // namespace

ExitStatus exit_status(const verify::Report& report, const std::string& fail_on) {
  const std::optional<verify::Severity> least = threshold(fail_on);
  const bool fails =
      least && std::any_of(report.findings.begin(), report.findings.end(),
                           [&](const verify::Finding& f) { return f.severity >= *least; });
  if (fails) return ExitStatus::findings;
  return report.verdict == verify::Verdict::inconclusive ? ExitStatus::inconclusive
                                                         : ExitStatus::clean;
}

ExitStatus status_of(verify::ProductVerdict verdict) {
  if (verdict == verify::ProductVerdict::safe) return ExitStatus::clean;
  return verdict == verify::ProductVerdict::inconclusive ? ExitStatus::inconclusive
                                                         : ExitStatus::findings;
}

ExitStatus fail(const Error& error, ExitStatus status) {
  print_error(error.str());
  return status;
}

}  // namespace lockstep::reports
