// lockstep compare RUN_A RUN_B: where two runs of one job first differ.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/terminal.h"
#include "cli/commands.h"
#include "reports/exit_status.h"
#include "reports/findings/comparison_report.h"
#include "reports/output_targets.h"
#include "trace/load.h"
#include "verify/compare_runs.h"

namespace lockstep::cli {
namespace {

struct CompareCommand {
  std::string first, second;
  std::optional<double> tolerance;
  std::vector<std::string> outputs;
  bool quiet = false;
};

constexpr const char* kCompareFooter = R"(Examples:
  Does DDP train like manual synchronisation? Two runs that record values
  (watch: {every: 1} in both scenarios):
    lockstep run ddp.yaml --output-dir run-ddp
    lockstep run manual.yaml --output-dir run-manual
    lockstep compare run-ddp run-manual -o comparison.html

Compares, step by step, the gradients that the optimizer gets, the parameters
after the update, and the losses. The difference of tensors is estimated from
their sketches; equal hashes are exact.

Exit status: 0 the same up to rounding, 1 they differ, 2 bad usage,
3 nothing to compare.)";

Result<verify::Comparison> compare(const CompareCommand& command) {
  const ProgressLine progress("comparing");
  if (command.first == "-" && command.second == "-")
    return Error{"standard input is one run, and two are compared", {}, "name a file or a folder"};
  // Without evidence: only recorded values are compared, and logs have none.
  const Result<trace::Run> a = trace::load_run({command.first});
  if (!a) return a.error();
  const Result<trace::Run> b = trace::load_run({command.second});
  if (!b) return b.error();
  return verify::compare_runs(*a, *b, command.tolerance);
}

reports::ExitStatus run_compare(const CompareCommand& command) {
  // Before the traces are read: a typing error in an output should not cost minutes.
  const auto targets = reports::parse_output_targets(command.outputs, reports::comparison_forms());
  if (!targets) return reports::fail(targets.error());
  const Result<verify::Comparison> compared = compare(command);
  if (!compared) return reports::fail(compared.error());
  const verify::Comparison& comparison = *compared;
  const Status written =
      reports::write_targets(*targets, command.quiet, [&](const std::string& kind, bool to_stdout) {
        return reports::comparison_in(kind, comparison, reports::text_width(to_stdout));
      });
  if (!written) return reports::fail(written.error(), reports::ExitStatus::own_failure);
  // Runs that record no values in common agree in nothing, which is not agreement.
  if (comparison.compared == 0) return reports::ExitStatus::inconclusive;
  return comparison.first_difference ? reports::ExitStatus::findings : reports::ExitStatus::clean;
}

}  // namespace

void add_compare(CLI::App& app, reports::ExitStatus& status) {
  auto command = std::make_shared<CompareCommand>();
  CLI::App* sub = app.add_subcommand("compare", "Show where two runs of one job first differ");
  sub->footer(kCompareFooter);
  sub->add_option("RUN_A", command->first, "Traces of one run")->required();
  sub->add_option("RUN_B", command->second, "Traces of the run to compare it with")->required();
  sub->add_option("--tolerance", command->tolerance,
                  "Relative difference that counts as rounding;\ndefault: by type, "
                  "2.4e-4 for float32")
      ->check(CLI::PositiveNumber);
  sub->add_option("-o,--output", command->outputs,
                  "Write the comparison as text, json, html or\n"
                  "markdown: by the name's ending, or as json=c.txt;\n"
                  "\"-\" is standard output")
      ->type_name("[KIND=]PATH")
      ->allow_extra_args(false);
  sub->add_flag("-q,--quiet", command->quiet, "Print nothing but errors");
  sub->callback([command, &status] { status = run_compare(*command); });
}

}  // namespace lockstep::cli
