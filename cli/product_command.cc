#include "cli/product_command.h"

#include <iostream>

#include "base/files/write_file.h"
#include "base/patience.h"
#include "reports/filter/suppressions.h"
#include "reports/findings/product_text.h"
#include "trace/derivation.h"
#include "verify/certificates/certificate.h"
#include "verify/product/assignments.h"
#include "verify/product/compose.h"
#include "verify/product/decide.h"

namespace lockstep {

namespace {

Result<Derivation> load_program(const std::string& folder) {
  const Patience patience("reading traces");
  return load_derivation(folder);
}

Run usual_run(const ProductModel& model) {
  const std::optional<Assignment> steps = usual_steps(model);
  return steps ? compose(model, *steps) : Run{};
}

// What was decided without a finding, of all runs, with the counts of one of them.
Report report_without_findings(const ProductDecision& decision, const Run& run) {
  Report out;
  if (decision.verdict == ProductVerdict::inconclusive) out.verdict = Verdict::inconclusive;
  out.unknown = decision.why;
  out.ranks_expected = run.world_size;
  for (const RankTrace& trace : run.ranks) {
    out.ranks_read.push_back(trace.rank);
    out.events += trace.events.size();
  }
  return out;
}

}  // namespace

Status write_product_reports(const ProductModel& model, const ProductDecision& decision,
                             const ReportOptions& options, const Filter& filter) {
  if (options.outputs.empty()) return Status::ok();
  ReportOptions files = options;
  files.quiet = true;
  if (const auto& example = decision.counterexample)
    return write_reports(filtered(example->report, example->run, filter, today_utc()), example->run,
                         files);
  const Run run = usual_run(model);
  return write_reports(filtered(report_without_findings(decision, run), run, filter, today_utc()),
                       run, files);
}

ExitStatus status_of(ProductVerdict verdict) {
  if (verdict == ProductVerdict::safe) return ExitStatus::clean;
  return verdict == ProductVerdict::inconclusive ? ExitStatus::inconclusive : ExitStatus::findings;
}

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
