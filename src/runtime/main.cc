// lockstep-worker: one process, one rank.
#include <cstdio>

#include <CLI/CLI.hpp>

#include "job/scenario.h"
#include "runtime/data_commands.h"
#include "runtime/model_commands.h"
#include "runtime/record/watchdog.h"
#include "runtime/worker.h"

namespace {

constexpr const char* kExamples = R"(Examples:
  two ranks by hand, in two shells or with &:
    lockstep-worker train job.yaml --rank 0 --world-size 2 --store /tmp/s --trace out
    lockstep-worker train job.yaml --rank 1 --world-size 2 --store /tmp/s --trace out
  under a launcher that sets RANK and WORLD_SIZE:
    lockstep-worker train job.yaml --store /shared/s --trace out

`lockstep run job.yaml` does this for you, and judges the traces.

Exit status: 0 finished; 1 training raised an exception (it is in the trace);
2 bad usage or scenario; 5 gave up because nothing moved; 128 + n ended by signal n.
)";

int train(const std::string& scenario_file, const lockstep::WorkerOptions& options) {
  const auto scenario = lockstep::load_scenario(scenario_file);
  if (!scenario) {
    std::fprintf(stderr, "%s\n", scenario.error().str().c_str());
    return lockstep::kExitUsage;
  }
  if (const auto runnable = lockstep::check_runnable(*scenario, options); !runnable) {
    std::fprintf(stderr, "%s\n", runnable.error().str().c_str());
    return lockstep::kExitUsage;
  }
  return lockstep::run_worker(*scenario, options);
}

}  // namespace

int main(int argc, char** argv) {
  lockstep::WorkerOptions options;
  options.parent = lockstep::prepare_process_for_watchdog();

  CLI::App app("lockstep-worker: trains one rank of a scenario and records its collectives");
  app.footer(kExamples);
  app.set_version_flag("--version", [] {
    return "lockstep-worker " LOCKSTEP_VERSION " (LibTorch " + lockstep::torch_version() + ")";
  });
  app.require_subcommand(1);
  std::string scenario;
  CLI::App* train_command = app.add_subcommand("train", "train one rank");
  train_command->footer(kExamples);
  train_command->add_option("SCENARIO", scenario, "scenario file (YAML)")->required();
  train_command->add_option("--rank", options.rank, "this process's rank, from 0")
      ->envname("RANK")
      ->required();
  train_command->add_option("--world-size", options.world_size, "number of ranks")
      ->envname("WORLD_SIZE")
      ->required();
  train_command
      ->add_option("--store", options.store,
                   "file through which the ranks find each other; a new one for each run")
      ->required();
  train_command->add_option("--trace", options.trace, "folder for the trace and the result")
      ->required()
      ->check(CLI::ExistingDirectory);
  const lockstep::DataCommands data(app);
  const lockstep::ModelCommands model(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? lockstep::kExitFinished : lockstep::kExitUsage;
  }
  if (data.chosen()) return data.run();
  if (model.chosen()) return model.run();
  return train(scenario, options);
}
