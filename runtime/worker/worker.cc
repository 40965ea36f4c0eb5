#include "runtime/worker/worker.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include <ATen/Parallel.h>
#include <torch/csrc/api/include/torch/version.h>

#include "base/text.h"
#include "runtime/device/device.h"
#include "runtime/faults/faults.h"
#include "runtime/groups/process_groups.h"
#include "runtime/job/scenario_variants.h"
#include "runtime/record/c10d/gpu_of_rank.h"
#include "runtime/record/c10d/recording_work.h"
#include "runtime/record/job_ring.h"
#include "runtime/record/watchdog.h"
#include "runtime/replay/refusals.h"
#include "runtime/replay/replay_scenario.h"
#include "runtime/replay/torch/player.h"
#include "runtime/train/result.h"
#include "runtime/train/train_loop.h"
#include "runtime/worker/machine.h"

namespace lockstep::runtime {
namespace {

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

DeviceKind device_kind(const Scenario& scenario, const WorkerOptions& options) {
  // NCCL has no calls for tensors of the host, and Gloo's are meant for them.
  if (options.device.empty()) {
    return scenario.backend == Scenario::Backend::nccl ? DeviceKind::cuda : DeviceKind::cpu;
  }
  return options.device == "cuda" ? DeviceKind::cuda : DeviceKind::cpu;
}

void save(const WorkerResult& result, const WorkerOptions& options) {
  const Status written =
      write_result(result, file_of_rank(options.trace, options.rank, ".result.json"));
  if (!written) fail_with(written.error());
}

// A device completes calls after the program has returned from them: the trace is whole once it
// has. Where it never does, the watchdog ends the process.
void wait_for_device(const Recorder& recorder) {
  while (recorder.outstanding()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// Modality rules, remedies, shards and what is expected were checked against the scenario's ranks,
// and mean something else with another number of them.
Error refuse_world_size(const Scenario& scenario, const WorkerOptions& options, int expected) {
  const auto ranks = [](int n) { return plural(n, "rank"); };
  if (options.reference) {
    return {c10::str("the reference is one process alone, and ", ranks(options.world_size),
                     " were started"),
            {},
            "start one lockstep-worker, without --rank and --world-size"};
  }
  const bool alone = options.world_size == 1;
  const std::string started =
      alone ? "this process is alone" : c10::str(ranks(options.world_size), " were started");
  const char* const how =
      alone ? " (lockstep run, torchrun, mpirun or srun; or --rank and --world-size)" : "";
  return {c10::str("the scenario says \"ranks: ", expected, "\", and ", started),
          {scenario.file},
          c10::str("start ", expected, how, ", or write \"ranks: ", options.world_size,
                   "\": what it says of single ranks is checked against that number")};
}

}  // namespace

int fail_with(const Error& error, int status) {
  std::fprintf(stderr, "%s\n", error.str().c_str());
  return status;
}

void record_exception(Recorder& recorder, int rank, const std::string& message) {
  recorder.raised(message);
  recorder.ring().finish(trace::End::exception);
  const std::int32_t step = recorder.context().step;
  const std::string when = step == trace::kNone ? "start" : c10::str("step ", step);
  std::fprintf(stderr, "rank %d: %s: %s\n", rank, when.c_str(), message.c_str());
  if (const auto known = known_failure(message)) fail_with(*known);
}

namespace {

// Records what training threw, and ends the process.
[[noreturn]] void end_by_exception(const std::exception& error, Recorder& recorder,
                                   WorkerResult& result, const WorkerOptions& options) {
  const std::string message = message_of(error);
  record_exception(recorder, options.rank, message);
  result.error = message;
  save(result, options);
  // Destructors would close connections, on which other ranks wait for ever or die.
  std::_Exit(kExitException);
}

// CUDA says by exceptions that its driver is too old, or that a device is full or broken.
Result<std::unique_ptr<Device>> open_device_of(const Scenario& scenario,
                                               const WorkerOptions& options) {
  try {
    return open_device({.kind = device_kind(scenario, options),
                        .transport = scenario.backend,
                        .local_rank = options.local_rank,
                        .share_gpus = options.share_gpus,
                        .queued = options.queued});
  } catch (const std::exception& error) {
    const std::string message = message_of(error);
    return known_failure(message).value_or(Error{message, {}, "nvidia-smi shows the GPUs"});
  }
}

// It is bad input, and the trace says so of this rank, for whom others may wait.
int refuse_device(const Error& error, Recorder& recorder) {
  recorder.raised(error.message);
  recorder.ring().finish(trace::End::exception);
  return fail_with(error);
}

}  // namespace

Status check_runnable(const Scenario& scenario, const WorkerOptions& options) {
  const auto refuse = [&](std::string message, std::string fix) -> Status {
    return Error{std::move(message), {scenario.file}, std::move(fix)};
  };
  if (options.world_size < 1 || options.rank < 0 || options.rank >= options.world_size) {
    return Error{c10::str("rank ", options.rank, " is not one of ",
                          plural(std::max(0, options.world_size), "rank")),
                 {},
                 "give --rank and --world-size, or set RANK and WORLD_SIZE"};
  }
  const int expected = options.reference ? 1 : scenario.ranks;
  if (options.world_size != expected) return refuse_world_size(scenario, options, expected);
  const bool on_gpu = device_kind(scenario, options) == DeviceKind::cuda;
  if (scenario.replays() && on_gpu && scenario.backend == Scenario::Backend::gloo) {
    return refuse("a replay on Gloo makes its calls with tensors of the host",
                  "--device cpu, or backend: nccl");
  }
  const bool balances = scenario.data.balance == Scenario::Data::Balance::cost;
  if (balances && options.device == "cuda" && scenario.backend == Scenario::Backend::gloo) {
    return refuse(
        "distributing by cost needs NCCL's calls on a GPU: where Gloo makes them, neither the "
        "host's clock nor the GPU's says how long a rank computes and how long it waits for others",
        "backend: nccl, --device cpu, or \"balance: none\"");
  }
  return check_named_files(scenario);
}

namespace {

void train(const Scenario& job, const Scenario& scenario, ProcessGroups& groups, Recorder& recorder,
           WorkerResult& result, const WorkerOptions& options) {
  StepLog log(file_of_rank(options.trace, options.rank, ".metrics.jsonl"));
  make_train_loop(scenario, groups, recorder, result, &log, options.reference ? &job : nullptr)
      ->run();
}

// Until the launcher ends the job, which it does once the others are proven stuck, or too late.
int stand_still(ProcessGroups& groups, const Scenario& scenario) {
  groups.announce_done();
  std::this_thread::sleep_for(milliseconds(scenario.limits.total_s + kExitGraceS));
  return kExitGaveUp;
}

// The recorded calls that a replay makes; nothing: the job trains. Errors: load_replay_program()'s;
// calls that cannot be queued as NCCL would, because NCCL does not have them.
Result<std::optional<trace::Run>> replayed_calls(const Scenario& scenario,
                                                 const WorkerOptions& options) {
  if (!scenario.replays()) return std::optional<trace::Run>();
  Result<trace::Run> loaded = load_replay_program(scenario);
  if (!loaded) return loaded.error();
  if (options.queued != QueuedCalls::no) {
    if (const auto refused = find_nccl_refusal(*loaded)) return *refused;
  }
  return std::optional(std::move(*loaded));
}

// Closes the connections once all ranks are done. Until then a rank that still waits for this one
// must be seen waiting: a closed connection would look like this rank's failure.
void leave_together(std::optional<ProcessGroups>& groups, const Scenario& scenario,
                    Recorder& recorder, Watchdog& watchdog) {
  bool all_done = false;
  {
    // Longer than the watchdog's timeout: a rank that hangs has ended by then, and is not waited
    // for.
    const Recorder::Blocked waiting(recorder, "the other ranks to finish",
                                    Recorder::Blocked::Limit::total);
    groups->announce_done();
    all_done =
        groups->wait_until_all_are_done(milliseconds(scenario.limits.hang_after_s + kExitGraceS));
  }
  const Recorder::Blocked leaving(recorder, "its connections to close");
  if (all_done) {
    groups->shut_down();
  } else {
    groups->abort_all();  // some rank is gone, and shutting down would wait for it
  }
  watchdog.abort_by({});
  groups.reset();  // here, where the watchdog still looks
}

}  // namespace

int run_worker(const Scenario& job, const WorkerOptions& options) {
  const Result<Scenario> own = options.reference ? reference_of(job) : Result<Scenario>(job);
  if (!own) return fail_with(own.error());
  const Scenario& scenario = *own;
  const Result<std::optional<trace::Run>> program = replayed_calls(scenario, options);
  if (!program) return fail_with(program.error());
  const std::optional<trace::Run>& replay = *program;
  auto ring = make_job_ring(
      scenario, {.rank = options.rank,
                 .world_size = options.world_size,
                 .folder = options.trace,
                 .records = replay ? records_of(*replay->find(trace::Rank(options.rank)))
                                   : records_of(scenario, options.rank),
                 .queued = options.queued != QueuedCalls::no});
  if (!ring) return fail_with(ring.error());
  // Before any thread starts, which would keep the old policy.
  use_batch_scheduling();
  Recorder recorder(**ring);
  Watchdog watchdog(recorder, {.rank = options.rank,
                               .hang_after_s = scenario.limits.hang_after_s,
                               .total_s = scenario.limits.total_s,
                               .parent = options.parent,
                               .stack_file = file_of_rank(options.trace, options.rank, ".stack")});
  // Ranks share this machine's processors: each with a pool of threads would only take turns.
  at::set_num_threads(1);
  auto device = open_device_of(scenario, options);
  if (!device) return refuse_device(device.error(), recorder);
  GpuOfRank(**ring, ::getenv).uses((*device)->torch_device());

  WorkerResult result;
  result.rank = options.rank;
  result.times_mean_nothing = options.share_gpus;
  const Rendezvous rendezvous = options.store.empty()
                                    ? Rendezvous(options.master_host, options.master_port,
                                                 options.store_is_served, options.attempt)
                                    : Rendezvous(options.store);
  std::optional<ProcessGroups> groups;
  trace::End end = trace::End::clean;
  try {
    {
      const Recorder::Blocked blocked_here(recorder, "the other ranks to come",
                                           Recorder::Blocked::Limit::total);
      groups.emplace(rendezvous, RankOf{options.rank, options.world_size},
                     milliseconds(scenario.limits.total_s), recorder, std::move(*device));
    }
    watchdog.abort_by([&groups] { groups->abort_all(); });
    if (replay) {
      end = play(*replay, trace::Rank(options.rank), *groups, recorder);
    } else {
      train(job, scenario, *groups, recorder, result, options);
    }
    // A replay that stands still never made calls that the calls on its device may wait for.
    if (groups->device().queues() && end != trace::End::hung) wait_for_device(recorder);
  } catch (const std::exception& error) {
    // The store's server may be gone: the watchdog keeps looking while the others are informed.
    const Recorder::Blocked announcing(recorder, "the store");
    if (groups) groups->announce_done();
    end_by_exception(error, recorder, result, options);
  }
  // The program of this rank is over; its trace says so before the rank waits for the others.
  recorder.ring().finish(end);
  if (end == trace::End::hung) return stand_still(*groups, scenario);
  save(result, options);
  leave_together(groups, scenario, recorder, watchdog);
  return kExitFinished;
}

std::string torch_version() {
  return c10::str(TORCH_VERSION_MAJOR, ".", TORCH_VERSION_MINOR, ".", TORCH_VERSION_PATCH);
}

}  // namespace lockstep::runtime
