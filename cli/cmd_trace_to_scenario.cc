// lockstep trace-to-scenario PATH…: a recorded failure as a scenario that makes it happen again.
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <memory>

#include "cli/commands.h"
#include "reports/exit_status.h"
#include "runtime/launch/recorded_failure.h"
#include "runtime/replay/program.h"

namespace lockstep::cli {
namespace {

constexpr const char* kTraceToScenarioFooter = R"(Examples:
  From a job that hung to a test in CI:
    lockstep trace-to-scenario /tmp/job-4711/ -o hang.yaml
    lockstep run --check hang.yaml
  Flight Recorder dumps of a job whose tensors do not fit into this machine:
    lockstep trace-to-scenario dumps/ -o hang.yaml --max-elements 4096
  Only what led to it:
    lockstep trace-to-scenario /tmp/job-4711/ -o hang.yaml --last 20

Writes the scenario, and beside it the calls as a folder of traces: job.yaml
and job.calls/. What is expected of the replay is the verdict on the traces.
Refuses what a replay would not show: wrong numbers, missing ranks, MPI
programs. docs/replay.md says how calls are replayed, and what is different.)";

}  // namespace

void add_trace_to_scenario(CLI::App& app, reports::ExitStatus& status) {
  CLI::App* command = app.add_subcommand("trace-to-scenario",
                                         "Make a recorded failure a scenario that shows it again");
  const auto options = std::make_shared<runtime::RecordedFailure>();
  command->add_option("PATH", options->paths, "Trace files, or folders that hold them")
      ->type_name("")
      ->required();
  command
      ->add_option("-o,--output", options->output,
                   "The scenario's file; replay.yaml unless told.\nThe calls go into a folder "
                   "beside it")
      ->type_name("FILE");
  command
      ->add_option("--last", options->program.last,
                   "Only so many calls of each rank, the last ones, or\nmore where they would not "
                   "fit together")
      ->type_name("N")
      ->check(CLI::Range(std::size_t{1}, runtime::kMaxReplayCalls));
  command
      ->add_option("--max-elements", options->program.max_elements,
                   "Shrink larger tensors; sizes that are equal stay so,\nand those that differ "
                   "still do")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{2}, std::int64_t{1} << 30U));
  command->add_flag("--force", options->force, "Replace files that are there already");
  command
      ->add_option("--format", options->load.format, "Read as this format; by content unless told")
      ->type_name("NAME");
  command
      ->add_option("--rank-pattern", options->load.rank_pattern,
                   "Regular expression whose first group is the rank in a\nfile's name")
      ->type_name("REGEX");
  command->footer(kTraceToScenarioFooter);
  command->callback(
      [options, &status] { status = runtime::recorded_failure_to_scenario(*options, std::cout); });
}

}  // namespace lockstep::cli
