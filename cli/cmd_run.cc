// lockstep run SCENARIO…: trains on real processes, proves a hang while it runs, and reports.
#include <memory>
#include <ostream>
#include <string>

#include "cli/commands.h"
#include "cli/report_options.h"
#include "runtime/launch/run_scenarios.h"
#include "runtime/study/run_study.h"

namespace lockstep::cli {
namespace {

constexpr const char* kRunFooter = R"(Examples:
  Run a job whose ranks disagree about images, and have the hang explained:
    lockstep run scenarios/modality/manual_hang_bad.yaml
  The same job with its remedy:
    lockstep run scenarios/modality/manual_hang_ok.yaml
  Does it train as one process with all batches would?
    lockstep run --reference scenarios/numbers/watched_ok.yaml
    lockstep run --reference scenarios/fsdp scenarios/pipeline
  In CI: every scenario of a folder must go as its "expect:" says:
    lockstep run --check --quiet scenarios/

Traces, logs, results and report.json of a run stay in its folder; judge them
again with `lockstep verify FOLDER`. docs/scenarios.md describes scenarios.)";

}  // namespace

void add_run(CLI::App& app, reports::ExitStatus& status) {
  CLI::App* command =
      app.add_subcommand("run", "Train on real processes, prove a hang at once, report");
  const auto options = std::make_shared<runtime::RunOptions>();
  command->add_option("SCENARIO", options->paths, "Scenario files, or folders that hold them")
      ->type_name("")
      ->required();
  command->add_flag("--check", options->check,
                    "Compare with the scenario's \"expect:\";\nexit with 0 when it is so");
  command->add_flag("--reference", options->reference,
                    "Train the same in one process, too, with all ranks'\n"
                    "batches: do the two end at one loss, and where do they\n"
                    "part? Exits with 1 where they do not agree");
  command->add_flag("--share-gpus", options->share_gpus,
                    "Where the backend is nccl and there are fewer GPUs\n"
                    "than ranks: let ranks share them, for testing. Times\n"
                    "mean nothing then");
  command
      ->add_option("--output-dir", options->output_dir,
                   "The run's folder; of several runs: its parent;\n"
                   "left out: a new one in " +
                       std::string(runtime::kRunsFolder))
      ->type_name("DIR");
  add_report_options(*command, options->report);
  command->footer(kRunFooter);
  command->callback([options, &status] {
    status = runtime::run_scenarios(*options, [&options](const runtime::Study& study,
                                                         const std::string& worker,
                                                         const std::string& folder,
                                                         Interrupts& interrupts,
                                                         std::ostream& said) {
      return runtime::run_study(study, {worker, folder, options->report.quiet}, interrupts, said);
    });
  });
}

}  // namespace lockstep::cli
