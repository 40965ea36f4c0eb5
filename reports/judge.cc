#include "reports/judge.h"

#include <algorithm>
#include <optional>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/files/read_file.h"
#include "base/files/write_file.h"
#include "base/result.h"
#include "base/terminal.h"
#include "reports/filter/filter.h"
#include "reports/findings/product_text.h"
#include "trace/attempts.h"
#include "trace/derivation.h"
#include "verify/certificates/certificate.h"
#include "verify/certificates/run_certificate.h"
#include "verify/context.h"
#include "verify/product/decide.h"
#include "verify/replay/semantics.h"
#include "verify/verify.h"

namespace lockstep::reports {

namespace {

constexpr std::size_t kLargestProduct = std::size_t{16} << 20U;

Result<trace::Run> load_recorded(const TracesToJudge& traces) {
  const ProgressLine progress("reading traces");
  trace::LoadOptions options = traces.load;
  options.evidence = true;
  return trace::load_run(traces.paths, options);
}

// What an earlier attempt shows first; empty: nothing.
std::string first_of(const trace::Attempt& attempt, const TracesToJudge& traces) {
  trace::LoadOptions options = traces.load;
  options.evidence = true;
  const Result<trace::Run> run = trace::load_run(attempt.paths, options);
  if (!run) return "";
  const verify::Report report =
      verify::verify(*run, {.semantics = verify::call_semantics_from_name(traces.semantics)});
  for (const verify::Finding& finding : report.findings)
    if (finding.severity == verify::Severity::error) return finding.message;
  return "";
}

// What ended the earlier attempts of a job that its launcher restarted: the last one may fail
// for another reason, as where no checkpoint was written yet, or not at all.
std::optional<verify::Finding> tell_earlier_attempts(const std::vector<trace::Attempt>& attempts,
                                                     const TracesToJudge& traces) {
  constexpr std::size_t kTold = 4;  // the first ones: what comes later mostly follows from them
  verify::Finding note = verify::make_finding(verify::RuleId::job_evidence);
  std::string why;
  for (const trace::Attempt& attempt :
       std::span(attempts).first(std::min(kTold, attempts.size()))) {
    const std::string first = first_of(attempt, traces);
    if (first.empty()) continue;
    why += fmt::format("{}attempt {}: {}", why.empty() ? "" : "; ", attempt.number, first);
    if (note.fix.empty() || why.starts_with(fmt::format("attempt {}:", attempt.number)))
      note.fix = fmt::format("fix what failed first; to see all of it: lockstep verify {}",
                             fmt::join(attempt.paths, " "));
  }
  if (why.empty()) return std::nullopt;
  note.message =
      fmt::format("the launcher started the job again after {}: {}",
                  attempts.size() == 1 ? "an attempt that failed" : "attempts that failed", why);
  set_fingerprint(note, "attempts");
  return note;
}

verify::Report judge_recorded(const trace::Run& run, const verify::VerifyOptions& options) {
  const ProgressLine progress("verifying");
  return verify::verify(run, options);
}

Result<trace::Derivation> load_program(const std::string& folder) {
  const ProgressLine progress("reading traces");
  return trace::load_derivation(folder);
}

// Writes a certificate that was asked for. Returns `status`, that of the verdict; but 3 for a clean
// run or a safe program that has no certificate.
ExitStatus write_certificate_to(const std::string& file, const Result<std::string>& certificate,
                                ExitStatus status) {
  if (!certificate)
    return fail(certificate.error(),
                status == ExitStatus::clean ? ExitStatus::inconclusive : status);
  if (const Status written = write_file(file, *certificate); !written)
    return fail(written.error(), ExitStatus::own_failure);
  return status;
}

}  // namespace

ExitStatus judge_traces(const TracesToJudge& traces, const ReportOptions& report) {
  const Result<Filter> filter = load_filter(report.filter);
  if (!filter) return fail(filter.error());
  std::vector<trace::Attempt> attempts = trace::earlier_attempts(traces.paths);
  Result<trace::Run> run = load_recorded(traces);
  std::string lost;  // why an earlier attempt than the last one is judged
  while (!run && !attempts.empty()) {
    lost = fmt::format("the last attempt left nothing that can be judged; this is attempt {}",
                       attempts.back().number);
    TracesToJudge earlier = traces;
    earlier.paths = attempts.back().paths;
    attempts.pop_back();
    if (Result<trace::Run> found = load_recorded(earlier)) run = std::move(found);
  }
  if (!run) return fail(run.error());
  ReportOptions outputs = report;
  outputs.semantics = verify::call_semantics_from_name(traces.semantics);
  if (!lost.empty()) run->unknown.insert(run->unknown.begin(), lost);
  verify::Report judged =
      judge_recorded(*run, {.hung = traces.hung, .semantics = outputs.semantics});
  if (auto note = tell_earlier_attempts(attempts, traces))
    judged.findings.push_back(*std::move(note));
  const FilteredReport left = filtered(judged, *run, *filter, today_utc());
  ExitStatus status = exit_status(left.report, report.fail_on);
  // Before the reports: the last of them may go to a pipe that its reader closes. It is about all
  // findings, not only about those that the filter leaves.
  if (!traces.certificate.empty())
    status = write_certificate_to(
        traces.certificate,
        verify::write_run_certificate(*run, judged,
                                      outputs.semantics.value_or(verify::recorded_semantics(*run))),
        status);
  if (const Status written = write_reports(left, *run, outputs); !written)
    return fail(written.error(), ExitStatus::own_failure);
  return status;
}

ExitStatus judge_product(const std::string& folder, const std::string& certificate,
                         const ReportOptions& options) {
  const Result<Filter> filter = load_filter(options.filter);
  if (!filter) return fail(filter.error());
  const Result<trace::Derivation> derivation = load_program(folder);
  if (!derivation) return fail(derivation.error());
  const verify::ProductModel model(*derivation);
  const verify::ProductDecision decision = verify::decide(model);
  // Files first, as in judge_traces().
  ExitStatus status = status_of(decision.verdict);
  if (!certificate.empty()) {
    const Result<std::string> product = read_file(folder + "/product.json", kLargestProduct);
    if (!product) return fail(product.error());
    status = write_certificate_to(certificate, verify::write_certificate(model, decision, *product),
                                  status);
  }
  if (const Status written = write_product_reports(model, decision, options, *filter); !written)
    return fail(written.error(), ExitStatus::own_failure);
  if (options.quiet || takes_stdout(options)) return status;
  ProductTextOptions text;
  text.color = stdout_wants_color();
  text.width = stdout_columns();
  if (const Status printed = write_stdout(product_text_report(model, decision, text)); !printed)
    return fail(printed.error(), ExitStatus::own_failure);
  return status;
}

}  // namespace lockstep::reports
