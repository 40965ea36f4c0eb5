#include "reports/judge.h"

#include <iostream>
#include <optional>

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

namespace lockstep {

namespace {

Result<Run> load_recorded(const TracesToJudge& traces) {
  const Patience patience("reading traces");
  LoadOptions options = traces.load;
  options.evidence = true;
  return load_run(traces.paths, options);
}

Report judge_recorded(const Run& run, std::optional<CallSemantics> semantics) {
  const Patience patience("verifying");
  VerifyOptions options;
  options.semantics = semantics;
  return verify(run, options);
}

// `status`: of the report, which a run without a certificate keeps unless that was clean.
ExitStatus write_certificate_of(const Run& run, const Report& report, CallSemantics semantics,
                                const std::string& file, ExitStatus status) {
  const Result<std::string> text = write_run_certificate(run, report, semantics);
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
  const Result<Run> run = load_recorded(traces);
  if (!run) return fail(run.error());
  ReportOptions outputs = report;
  outputs.semantics = call_semantics_from_name(traces.semantics);
  const Report judged = judge_recorded(*run, outputs.semantics);
  const FilteredReport left = filtered(judged, *run, *filter, today_utc());
  if (const Status written = write_reports(left, *run, outputs); !written)
    return fail(written.error(), ExitStatus::own_failure);
  const ExitStatus status = exit_status(left.report, report.fail_on);
  if (traces.certificate.empty()) return status;
  return write_certificate_of(*run, judged, outputs.semantics.value_or(recorded_semantics(*run)),
                              traces.certificate, status);
}

namespace {

Result<Derivation> load_program(const std::string& folder) {
  const Patience patience("reading traces");
  return load_derivation(folder);
}

}  // namespace

ExitStatus judge_product(const std::string& folder, const std::string& certificate,
                         const ReportOptions& options) {
  const Result<Filter> filter = load_filter(options.filter);
  if (!filter) return fail(filter.error());
  const Result<Derivation> derivation = load_program(folder);
  if (!derivation) return fail(derivation.error());
  const ProductModel model(*derivation);
  const ProductDecision decision = decide(model);
  if (!options.quiet && !takes_stdout(options)) {
    ProductTextOptions text;
    text.color = stdout_wants_color();
    std::cout << product_text_report(model, decision, text);
  }
  if (const Status written = write_product_reports(model, decision, options, *filter); !written)
    return fail(written.error(), ExitStatus::own_failure);
  if (certificate.empty()) return status_of(decision.verdict);
  const Result<std::string> text = write_certificate(model, decision);
  if (!text) {
    const ExitStatus status = status_of(decision.verdict);
    return fail(text.error(), status == ExitStatus::clean ? ExitStatus::inconclusive : status);
  }
  if (const Status written = write_file(certificate, *text); !written)
    return fail(written.error(), ExitStatus::own_failure);
  return ExitStatus::clean;
}

}  // namespace lockstep
