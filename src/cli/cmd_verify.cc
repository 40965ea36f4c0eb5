// lockstep verify PATH…: judges recorded runs.
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "base/text.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/patience.h"
#include "trace/load.h"
#include "verify/verify.h"

namespace lockstep {
namespace {

struct VerifyCommand {
  std::vector<std::string> paths;
  ReportOptions report;
};

constexpr const char* kFooter = R"(Examples:
  Why did this job hang? A folder with the traces of its ranks:
    lockstep verify /tmp/job-4711/
  The same for some ranks only; what is missing is said in the report:
    lockstep verify rank_0.trace.jsonl.gz rank_3.ring
  In CI: fail on warnings too, keep the report for other programs:
    lockstep verify traces/ --fail-on warning --output json=report.json --quiet

Reads rank_<r>.trace.jsonl, rank_<r>.trace.jsonl.gz and *.ring, in any order.)";

Result<Run> load(const std::vector<std::string>& paths) {
  const Patience patience("reading traces");
  return load_run(paths);
}

Report judge(const Run& run) {
  const Patience patience("verifying");
  return verify(run);
}

ExitStatus run_verify(const VerifyCommand& command) {
  if (const Status outputs = check_outputs(command.report); !outputs) return fail(outputs.error());
  const Result<Run> run = load(command.paths);
  if (!run) return fail(run.error());
  const Report report = judge(*run);
  if (const Status written = write_reports(report, *run, command.report); !written)
    return fail(written.error(), ExitStatus::own_failure);
  return exit_status(report, command.report.fail_on);
}

}  // namespace

void add_verify(CLI::App& app, ExitStatus& status) {
  CLI::App* command = app.add_subcommand("verify", "Judge recorded traces: who, what, where, why");
  const auto options = std::make_shared<VerifyCommand>();
  command->add_option("PATH", options->paths, "Trace files, or folders that hold them")
      ->type_name("")
      ->required();
  add_report_options(*command, options->report);
  command->footer(kFooter);
  command->callback([options, &status] { status = run_verify(*options); });
}

}  // namespace lockstep
