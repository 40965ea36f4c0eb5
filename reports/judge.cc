#include "reports/judge.h"

#include <optional>

#include "base/files/read_file.h"
#include "base/files/write_file.h"
#include "base/result.h"
#include "base/terminal.h"
#include "reports/filter/filter.h"
#include "reports/findings/product_text.h"
#include "trace/derivation.h"
#include "verify/certificates/certificate.h"
#include "verify/certificates/run_certificate.h"
#include "verify/product/decide.h"
#include "verify/replay/semantics.h"
#include "verify/verify.h"

namespace lockstep::reports {

namespace {

Result<trace::Run> load_recorded(const TracesToJudge& traces) {
  const ProgressLine progress("reading traces");
  trace::LoadOptions options = traces.load;
  options.evidence = true;
  return trace::load_run(traces.paths, options);
}

verify::Report judge_recorded(const trace::Run& run, const verify::VerifyOptions& options) {
  const ProgressLine progress("verifying");
  return verify::verify(run, options);
}

// Returns `status`, the report's; but 3 for a clean run that has no certificate: it was asked for.
ExitStatus write_certificate_of(const trace::Run& run, const verify::Report& report,
                                verify::CallSemantics semantics, const std::string& file,
                                ExitStatus status) {
  const Result<std::string> text = verify::write_run_certificate(run, report, semantics);
  if (!text)
    return fail(text.error(), status == ExitStatus::clean ? ExitStatus::inconclusive : status);
  if (const Status written = write_file(file, *text); !written)
    return fail(written.error(), ExitStatus::own_failure);
  return status;
}

}  // namespace

ExitStatus judge_traces(const TracesToJudge& traces, const ReportOptions& report) {
  const Result<Filter> filter = load_filter(report.filter);
  if (!filter) return fail(filter.error());
  const Result<trace::Run> run = load_recorded(traces);
  if (!run) return fail(run.error());
  ReportOptions outputs = report;
  outputs.semantics = verify::call_semantics_from_name(traces.semantics);
  const verify::Report judged =
      judge_recorded(*run, {.hung = traces.hung, .semantics = outputs.semantics});
  const FilteredReport left = filtered(judged, *run, *filter, today_utc());
  ExitStatus status = exit_status(left.report, report.fail_on);
  // Before the reports: the last of them may go to a pipe that its reader closes. It is about all
  // findings, not only about those that the filter leaves.
  if (!traces.certificate.empty())
    status = write_certificate_of(*run, judged,
                                  outputs.semantics.value_or(verify::recorded_semantics(*run)),
                                  traces.certificate, status);
  if (const Status written = write_reports(left, *run, outputs); !written)
    return fail(written.error(), ExitStatus::own_failure);
  return status;
}

namespace {

Result<trace::Derivation> load_program(const std::string& folder) {
  const ProgressLine progress("reading traces");
  return trace::load_derivation(folder);
}

constexpr std::size_t kLargestProduct = std::size_t{16} << 20U;

// Returns the verdict's status; but 3 for a safe program that has no certificate: it was asked for.
ExitStatus write_certificate_of(const verify::ProductModel& model,
                                const verify::ProductDecision& decision, const std::string& folder,
                                const std::string& file) {
  const ExitStatus status = status_of(decision.verdict);
  const Result<std::string> product = read_file(folder + "/product.json", kLargestProduct);
  if (!product) return fail(product.error());
  const Result<std::string> text = verify::write_certificate(model, decision, *product);
  if (!text)
    return fail(text.error(), status == ExitStatus::clean ? ExitStatus::inconclusive : status);
  if (const Status written = write_file(file, *text); !written)
    return fail(written.error(), ExitStatus::own_failure);
  return ExitStatus::clean;
}

}  // namespace

ExitStatus judge_product(const std::string& folder, const std::string& certificate,
                         const ReportOptions& options) {
  const Result<Filter> filter = load_filter(options.filter);
  if (!filter) return fail(filter.error());
  const Result<trace::Derivation> derivation = load_program(folder);
  if (!derivation) return fail(derivation.error());
  const verify::ProductModel model(*derivation);
  const verify::ProductDecision decision = verify::decide(model);
  // Files first, as in judge_traces().
  const ExitStatus status = certificate.empty()
                                ? status_of(decision.verdict)
                                : write_certificate_of(model, decision, folder, certificate);
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
