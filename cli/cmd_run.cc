// lockstep run SCENARIO…: trains on real processes, proves a hang while it runs, and reports.
#include <ctime>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "base/text.h"
#include "cli/commands.h"
#include "cli/input_files.h"
#include "cli/report_options.h"
#include "runtime/job/study.h"
#include "runtime/launch/run_folder.h"
#include "runtime/launch/run_scenarios.h"
#include "runtime/study/run_study.h"

namespace lockstep::cli {
namespace {

constexpr const char* kRunFooter = R"(Examples:
  Run a job in which some ranks have no images, and explain the hang:
    lockstep run scenarios/modality/manual_hang_bad.yaml
  The same job with its remedy:
    lockstep run scenarios/modality/manual_hang_ok.yaml
  Does the job train like one process on all batches?
    lockstep run --reference scenarios/numbers/watched_ok.yaml
    lockstep run --reference scenarios/fsdp scenarios/pipeline
  In CI: every scenario of a folder must end as its "expect:" says:
    lockstep run --check --quiet scenarios/

Traces, logs, results and report.json of a run stay in its folder; judge them
again with `lockstep verify FOLDER`. docs/scenarios.md describes scenarios.

Exit status: 0 clean, 1 findings, 2 bad usage or scenario, 3 inconclusive,
4 the tool failed; with --check 0 as expected, 1 not.)";

// Studies are run by `sweep`; until the next release `run` still accepts a single one.
reports::ExitStatus run(runtime::RunOptions options) {
  StandardInput input;
  for (std::string& path : options.paths)
    if (const Status taken = input.take(path); !taken) return reports::fail(taken.error());
  options.name_of = input.names();
  // A folder may hold a study as well as scenarios; only the scenarios are run.
  if (options.paths.size() == 1 && !std::filesystem::is_directory(options.paths.front())) {
    const Result<std::optional<runtime::Study>> study = runtime::load_study(options.paths.front());
    if (study && *study) {
      const std::string folder =
          (std::filesystem::path(options.output_dir.empty() ? runtime::kRunsFolder
                                                            : options.output_dir) /
           runtime::run_folder_name((*study)->file, std::time(nullptr)))
              .string();
      std::cerr << "lockstep: note: a study is run by `lockstep sweep "
                << (input.has(options.paths.front()) ? "-" : printable(options.paths.front()))
                << " -o DIR`; the old form goes with the next "
                << "release\n";
      return runtime::run_study(**study, folder, options.report.quiet, options.report.outputs);
    }
  }
  return runtime::run_scenarios(options);
}

}  // namespace

void add_run(CLI::App& app, reports::ExitStatus& status) {
  CLI::App* command =
      app.add_subcommand("run", "Train on real processes, prove a hang at once, report");
  const auto options = std::make_shared<runtime::RunOptions>();
  command->add_option("SCENARIO", options->paths, "Scenario files, or folders that hold them")
      ->type_name("")
      ->required();
  command->add_flag("--check", options->check,
                    "Compare with the scenario's \"expect:\";\nexit with 0 if they agree");
  command->add_flag("--reference", options->reference,
                    "Also train in one process on all ranks' batches, and\n"
                    "report whether the losses agree and where the two\n"
                    "first differ; exit with 1 if they do not agree");
  command->add_flag("--share-gpus", options->share_gpus,
                    "For tests with backend nccl: let ranks share GPUs\n"
                    "where there are too few. Times are then meaningless");
  command
      ->add_option(
          "--output-dir", options->output_dir,
          fmt::format("The run's folder; for several runs, their parent;\ndefault: a new one in {}",
                      runtime::kRunsFolder))
      ->type_name("DIR");
  add_report_options(*command, options->report);
  command->footer(kRunFooter);
  command->callback([options, &status] { status = run(*options); });
}

}  // namespace lockstep::cli
