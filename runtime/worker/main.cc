// lockstep-worker: one process, one rank.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include <CLI/CLI.hpp>

#include "runtime/derive/torch/lone_runs.h"
#include "runtime/job/launch_settings.h"
#include "runtime/job/scenario.h"
#include "runtime/record/watchdog.h"
#include "runtime/train/batch_source.h"
#include "runtime/worker/commands.h"
#include "runtime/worker/worker.h"

namespace lockstep::runtime {
namespace {

constexpr const char* kExamples = R"(Examples:
  two ranks by hand, in two shells or with &:
    lockstep-worker train job.yaml --rank 0 --world-size 2 --store s --trace out
    lockstep-worker train job.yaml --rank 1 --world-size 2 --store s --trace out
  under torchrun, mpirun or Slurm, which say which rank this is:
    torchrun --nproc-per-node 2 --no-python \
      lockstep-worker train job.yaml --trace out
    mpirun -n 2 lockstep-worker train job.yaml --master node0:29500 --trace out
    srun -n 2 lockstep-worker train job.yaml --store /shared/s --trace out

`lockstep run job.yaml` does this for you, and judges the traces.

Exit status: 0 finished; 1 training raised an exception (it is in the trace);
2 bad usage or scenario; 5 gave up because nothing moved; 128 + n: signal n.
)";

// Which rank this is and where the others are, from the options and from the launcher's variables.
Status find_rank_settings(const LaunchOptions& launch, WorkerOptions& options) {
  const auto found = find_launch_settings(
      launch, [](const char* name) -> const char* { return std::getenv(name); });
  if (!found) return found.error();
  options.rank = found->rank;
  options.world_size = found->world_size;
  options.local_rank = found->local_rank;
  options.store = found->store_file;
  options.master_host = found->master_host;
  options.master_port = found->master_port;
  options.store_is_served = found->store_is_served;
  options.attempt = found->attempt;
  options.share_gpus = found->share_gpus;
  options.queued = found->queued;
  if (options.store.empty() && options.master_host.empty()) {  // a single process
    options.store = options.trace + "/store." + std::to_string(getpid());
  }
  return Status::ok();
}

int train(const std::string& scenario_file, const LaunchOptions& launch, WorkerOptions options) {
  // Here, and not in main: the other commands have no watchdog, which alone reads the signals that
  // this blocks. No thread has been made yet.
  options.parent = prepare_process_for_watchdog();
  if (const auto found = find_rank_settings(launch, options); !found)
    return fail_with(found.error());
  const auto scenario = load_scenario(scenario_file);
  if (!scenario) return fail_with(scenario.error());
  if (const auto runnable = check_runnable(*scenario, options); !runnable)
    return fail_with(runnable.error());
  if (scenario->share_gpus) {  // `lockstep run` has set these already, other launchers have not
    for (const auto& [name, value] : sharing_environment(options.rank)) {
      setenv(name.c_str(), value.c_str(), /*overwrite=*/0);
    }
    options.share_gpus = true;
  }
  const int status = run_worker(*scenario, options);
  // Nobody watches over the libraries' destructors, and those of a GPU's may block.
  std::fflush(nullptr);
  std::_Exit(status);
}

std::string version() {
  return "lockstep-worker " LOCKSTEP_VERSION " (LibTorch " + torch_version() + ")";
}

// `lockstep derive` starts this: ranks of a list, one after the other in this process, with
// collectives that complete at once (runtime/derive/torch).
int run_lone_ranks(const std::string& list, bool on_meta) {
  std::printf("%s\n", version().c_str());  // whoever reads this log says what derived the calls
  std::fflush(stdout);
  const auto runs = read_lone_ranks(list);
  if (!runs) return fail_with(runs.error());
  const auto failure = run_alone(*runs, on_meta);
  if (!failure) return kExitFinished;
  return fail_with(failure->error, failure->refused ? kExitUsage : kExitFailed);
}

// Batches are drawn by LibTorch's generators, which `lockstep` does not have: it asks this program
// which ranks get equal ones, and derives one rank of each kind.
int print_equal_draws(const std::string& scenario_file) {
  const auto scenario = load_scenario(scenario_file);
  const auto drawn =
      scenario ? ranks_that_draw_alike(*scenario) : Result<DrawnAlike>(scenario.error());
  if (!drawn) return fail_with(drawn.error());
  std::printf("%s\n", drawn_alike_text(*drawn).c_str());
  return std::fflush(stdout) == 0 ? kExitFinished : kExitFailed;
}

int run(int argc, char** argv) {
  WorkerOptions options;
  CLI::App app("lockstep-worker: trains one rank of a scenario and records its collectives");
  app.footer(kExamples);
  app.set_version_flag("--version", version);
  app.require_subcommand(1);
  std::string scenario;
  CLI::App* train_command = app.add_subcommand("train", "train one rank");
  train_command->footer(kExamples);
  train_command->add_option("SCENARIO", scenario, "scenario file (YAML)")->required();
  LaunchOptions launch;
  train_command->add_option("--rank", launch.rank, "this rank, from 0; default: the launcher's");
  train_command->add_option("--world-size", launch.world_size,
                            "number of ranks; default: the launcher's");
  train_command->add_option("--store", launch.store,
                            "file for the ranks' rendezvous; new for each run");
  train_command->add_option("--master", launch.master,
                            "HOST:PORT where the ranks rendezvous, served by rank 0;\n"
                            "default: MASTER_ADDR and MASTER_PORT");
  train_command
      ->add_option("--device", options.device,
                   "cpu or cuda; default: cuda where the scenario says backend: nccl")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  train_command->add_flag("--reference", options.reference,
                          "train in one process, on the batches of all ranks; the\n"
                          "distributed job is compared with it");
  train_command->add_option("--trace", options.trace, "folder for the trace and the result")
      ->required()
      ->check(CLI::ExistingDirectory);
  CLI::App* alone_command = app.add_subcommand(
      "alone", "record what ranks call, one rank at a time, for `lockstep derive`");
  std::string lone_runs;
  bool on_meta = false;
  alone_command
      ->add_option("LIST", lone_runs,
                   "JSON: [{\"scenario\": FILE, \"rank\": 0, \"trace\": FOLDER,\n"
                   "\"broadcasts\": FILE, \"dissent\": [STEP]}, ...]; `lockstep derive`\n"
                   "writes one")
      ->required();
  alone_command->add_flag("--meta", on_meta,
                          "use tensors without values, so that models of any size take\n"
                          "no memory and no time");
  CLI::App* draws_command = app.add_subcommand(
      "draws", "print which ranks draw equal batches: for each rank the first, as JSON");
  draws_command->add_option("SCENARIO", scenario, "scenario file (YAML)")->required();
  const DataCommands data(app);
  const ModelCommands model(app);
  const BatchSizeCommand batch_size(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitFinished : kExitUsage;
  }
  if (data.chosen()) return data.run();
  if (model.chosen()) return model.run();
  if (batch_size.chosen()) return batch_size.run();
  if (draws_command->parsed()) return print_equal_draws(scenario);
  if (alone_command->parsed()) return run_lone_ranks(lone_runs, on_meta);
  return train(scenario, launch, options);
}

}  // namespace
}  // namespace lockstep::runtime

int main(int argc, char** argv) { return lockstep::runtime::run(argc, argv); }
