#include "cli/product_command.h"

#include <iostream>

#include "base/write_file.h"
#include "cli/patience.h"
#include "cli/suppressions.h"
#include "reports/product_text.h"
#include "trace/derivation.h"
#include "verify/product/certificate.h"
#include "verify/product/decide.h"

namespace lockstep {

namespace {

Result<Derivation> load(const std::string& folder) {
  const Patience patience("reading traces");
  return load_derivation(folder);
}

// What the other forms of a report say: the counterexample's run, or that there is none.
Status write_outputs(const ProductDecision& decision, const ReportOptions& options,
                     const Filter& filter) {
  if (options.outputs.empty()) return Status::ok();
  const Run none;
  Report report;
  if (decision.verdict == ProductVerdict::inconclusive) {
    report.verdict = Verdict::inconclusive;
    report.unknown = decision.why;
  }
  const Run& run = decision.counterexample ? decision.counterexample->run : none;
  if (decision.counterexample) report = decision.counterexample->report;
  ReportOptions files = options;
  files.quiet = true;
  return write_reports(filtered(report, run, filter, today_utc()), run, files);
}

}  // namespace

ExitStatus status_of(ProductVerdict verdict) {
  if (verdict == ProductVerdict::safe) return ExitStatus::clean;
  return verdict == ProductVerdict::inconclusive ? ExitStatus::inconclusive : ExitStatus::findings;
}

ExitStatus judge_product(const std::string& folder, const std::string& certificate,
                         const ReportOptions& options) {
  const Result<Filter> filter = load_filter(options.filter);
  if (!filter) return fail(filter.error());
  const Result<Derivation> derivation = load(folder);
  if (!derivation) return fail(derivation.error());
  const ProductModel model(*derivation);
  const ProductDecision decision = decide(model);
  if (!options.quiet) {
    ProductTextOptions text;
    text.color = stdout_wants_color();
    std::cout << product_text_report(model, decision, text);
  }
  if (const Status written = write_outputs(decision, options, *filter); !written)
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
