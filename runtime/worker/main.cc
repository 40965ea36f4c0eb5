// lockstep-worker: one process, one rank.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "runtime/derive/torch/lone_runs.h"
#include "runtime/job/launch_settings.h"
#include "runtime/job/scenario.h"
#include "runtime/record/watchdog.h"
#include "runtime/train/batch_source.h"
#include "runtime/worker/commands.h"
#include "runtime/worker/fork_ranks.h"
#include "runtime/worker/worker.h"

namespace lockstep::runtime {
namespace {

constexpr const char* kTrainExamples = R"(Examples:
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

// `lockstep derive` and `lockstep simulate` start these commands; a person may, to look for a
// problem.
constexpr const char* kAloneExamples = R"(Examples:
  what rank 0 calls, into the folder rank-0:
    mkdir rank-0
    echo '[{"scenario": "job.yaml", "ranks": [0], "trace": "rank-0",
            "broadcasts": "rank-0/broadcasts"}]' > list.json
    lockstep-worker alone list.json

Exit status: 0 finished; 1 a rank raised an exception; 2 bad usage or scenario.
)";
constexpr const char* kDrawsExamples = R"(Example:
  lockstep-worker draws job.yaml

Exit status: 0 printed; 2 bad usage or scenario.
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

// `arguments`: of this program.
int train(const std::string& scenario_file, LaunchOptions launch, const std::string& fork_file,
          WorkerOptions options, const std::vector<char*>& arguments) {
  if (!fork_file.empty()) {
    const Result<int> rank =
        fork_ranks(launch.world_size.value_or(1), options.trace, fork_file, arguments);
    if (!rank) return fail_with(rank.error(), kExitFailed);
    launch.rank = *rank;
  }
  // Blocks signals, which only the watchdog reads. So only this command, which has one, does it,
  // and before any thread is made.
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
  return run_worker(*scenario, options);
}

std::string version() {
  return c10::str("lockstep-worker " LOCKSTEP_VERSION " (LibTorch ", torch_version(), ")");
}

// `lockstep derive` starts this: ranks of a list, one after the other in this process, with
// collectives that complete at once (runtime/derive/torch).
int run_lone_ranks(const std::string& list, bool on_meta) {
  std::printf("%s\n", version().c_str());  // `lockstep derive` reads it from this log
  std::fflush(stdout);
  const auto runs = read_lone_ranks(list);
  if (!runs) return fail_with(runs.error());
  const auto failure = run_alone(*runs, on_meta);
  if (!failure) return kExitFinished;
  return fail_with(failure->error, failure->refused ? kExitUsage : kExitFailed);
}

// Batches are drawn by LibTorch's generators, which `lockstep` does not have. It asks this program
// which ranks draw equal batches, and derives one rank of each kind.
int print_equal_draws(const std::string& scenario_file) {
  const auto scenario = load_scenario(scenario_file);
  const auto drawn =
      scenario ? ranks_that_draw_alike(*scenario) : Result<DrawnAlike>(scenario.error());
  if (!drawn) return fail_with(drawn.error());
  std::printf("%s\n", drawn_alike_text(*drawn).c_str());
  return std::fflush(stdout) == 0 ? kExitFinished : kExitFailed;
}

struct TrainOptions {
  std::string scenario;
  std::string fork_file;
  LaunchOptions launch;
  WorkerOptions worker;
};

void add_train(CLI::App& app, TrainOptions& options) {
  CLI::App* command = app.add_subcommand("train", "train one rank");
  command->footer(kTrainExamples);
  command->add_option("SCENARIO", options.scenario, "scenario file (YAML)")->required();
  CLI::Option* const rank = command->add_option("--rank", options.launch.rank,
                                                "this rank, from 0; default: the launcher's");
  CLI::Option* const world_size = command->add_option("--world-size", options.launch.world_size,
                                                      "number of ranks; default: the launcher's");
  command
      ->add_option("--fork-ranks", options.fork_file,
                   "fork a process for each rank, write their process ids into\n"
                   "this file and exit; `lockstep run` does this")
      ->needs(world_size)
      ->excludes(rank);
  command->add_option("--store", options.launch.store,
                      "file for the ranks' rendezvous; new for each run");
  command->add_option("--master", options.launch.master,
                      "HOST:PORT where the ranks rendezvous, served by rank 0;\n"
                      "default: MASTER_ADDR and MASTER_PORT");
  command
      ->add_option("--device", options.worker.device,
                   "cpu or cuda; default: cuda if the scenario says backend: nccl")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  command->add_flag("--reference", options.worker.reference,
                    "train in one process, on the batches of all ranks; the\n"
                    "distributed job is compared with it");
  command->add_option("--trace", options.worker.trace, "folder for the trace and the result")
      ->required()
      ->check(CLI::ExistingDirectory);
}

CLI::App* add_alone(CLI::App& app, std::string& list, bool& on_meta) {
  CLI::App* command = app.add_subcommand(
      "alone", "record what ranks call, one rank at a time, for `lockstep derive`");
  command->footer(kAloneExamples);
  command
      ->add_option("LIST", list,
                   "JSON: [{\"scenario\": FILE, \"ranks\": [0], \"trace\": FOLDER,\n"
                   "\"broadcasts\": FILE}, ...]; `lockstep derive` writes one")
      ->required();
  command->add_flag("--meta", on_meta,
                    "use tensors without values, so that models of any size take\n"
                    "no memory and no time");
  return command;
}

CLI::App* add_draws(CLI::App& app, std::string& scenario) {
  CLI::App* command = app.add_subcommand(
      "draws", "print which ranks draw equal batches: for each rank the first, as JSON");
  command->footer(kDrawsExamples);
  command->add_option("SCENARIO", scenario, "scenario file (YAML)")->required();
  return command;
}

int run(int argc, char** argv) {
  CLI::App app("Trains one rank of a scenario and records its collectives", "lockstep-worker");
  app.footer(kTrainExamples);  // a subcommand without a footer of its own would show this one
  app.set_version_flag("--version", version);
  app.require_subcommand(1);
  TrainOptions training;
  add_train(app, training);
  std::string lone_runs, draws_scenario;
  bool on_meta = false;
  const CLI::App* const alone = add_alone(app, lone_runs, on_meta);
  const CLI::App* const draws = add_draws(app, draws_scenario);
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
  if (draws->parsed()) return print_equal_draws(draws_scenario);
  if (alone->parsed()) return run_lone_ranks(lone_runs, on_meta);
  return train(training.scenario, training.launch, training.fork_file, training.worker,
               {argv, argv + argc});
}

}  // namespace
}  // namespace lockstep::runtime

int main(int argc, char** argv) {
  const int status = lockstep::runtime::run(argc, argv);
  // Skips the libraries' destructors: after training the watchdog is gone, and those of a GPU's
  // libraries may block; LibTorch's take 0.1 s to unregister each operator.
  std::fflush(nullptr);
  std::_Exit(status);
}
