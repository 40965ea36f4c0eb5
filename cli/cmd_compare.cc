// lockstep compare RUN_A RUN_B: where two runs of one job part.
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "base/terminal.h"
#include "cli/commands.h"
#include "reports/exit_status.h"
#include "reports/findings/comparison_report.h"
#include "trace/load.h"
#include "verify/compare_runs.h"

namespace lockstep::cli {
namespace {

struct CompareCommand {
  std::string first, second;
  std::optional<double> tolerance;
};

constexpr const char* kCompareFooter = R"(Examples:
  Does DDP train like manual synchronisation? Two runs that record values
  (watch: {every: 1} in both scenarios):
    lockstep run ddp.yaml --output-dir run-ddp
    lockstep run manual.yaml --output-dir run-manual
    lockstep compare run-ddp run-manual

Compares, step by step, the gradients that the optimizer gets, the parameters
after the update, and the losses. The difference of tensors is estimated from
their sketches; equal hashes are exact.

Exit status: 0 the same up to rounding, 1 they differ, 2 bad usage,
3 nothing to compare.)";

reports::ExitStatus run_compare(const CompareCommand& command) {
  const Patience patience("comparing");
  const Result<trace::Run> a = trace::load_run({command.first});
  if (!a) return reports::fail(a.error());
  const Result<trace::Run> b = trace::load_run({command.second});
  if (!b) return reports::fail(b.error());
  const verify::Comparison comparison = verify::compare_runs(*a, *b, command.tolerance);
  std::cout << reports::comparison_text(comparison);
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
  sub->callback([command, &status] { status = run_compare(*command); });
}

}  // namespace lockstep::cli
