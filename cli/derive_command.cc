#include "cli/derive_command.h"

#include <iostream>
#include <optional>

#include "base/files/work_folder.h"
#include "cli/derive.h"
#include "cli/output.h"
#include "runtime/launch/scenario_files.h"
#include "runtime/launch/worker_program.h"

namespace lockstep {
namespace {

// What the user says; nothing: as it suits the job.
std::optional<bool> meta_of(const DeriveCommand& command) {
  if (!command.meta && !command.no_meta) return std::nullopt;
  return command.meta;
}

}  // namespace

ExitStatus derive_scenario(const DeriveCommand& command) {
  const ReportOptions files{.outputs = command.outputs};
  if (const Status outputs = check_outputs(files); !outputs) return fail(outputs.error());
  Result<Scenario> scenario = load_checked_scenario(command.path);
  if (!scenario) return fail(scenario.error());
  const Result<std::string> worker = find_worker(worker_search_of_this_process());
  if (!worker) return fail(worker.error());
  const WorkFolder folder(command.output_dir, "lockstep-derive-");
  if (!folder.usable()) {
    return fail(
        Error{"this folder cannot be made, or is not empty", {folder.path()}, "name a new one"});
  }
  Interrupts interrupts;
  const DeriveOptions options{
      *worker,         folder.path(),    command.certificate, command.write_scenario,
      command.outputs, command.remedies, meta_of(command),    command.quiet};
  // A report on standard output is not to be mixed with anything.
  std::ostream& said = takes_stdout(files) ? std::cerr : std::cout;
  const Result<ExitStatus> status =
      command.against.empty()
          ? derive(*scenario, options, interrupts, said)
          : derive_against(*scenario, command.against, options, interrupts, said);
  if (const int signal = interrupts.poll(); signal != 0) return interrupted_by(signal);
  if (!status) return fail(status.error());
  return *status;
}

}  // namespace lockstep
