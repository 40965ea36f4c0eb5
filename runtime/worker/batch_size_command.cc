// lockstep-worker batch-size: finds the largest batch that fits into memory, by trying.
#include <cstdint>
#include <cstdio>
#include <string>

#include <CLI/CLI.hpp>

#include "base/quantities.h"
#include "base/text.h"
#include "runtime/train/batch_size_probe.h"
#include "runtime/train/batch_size_search.h"
#include "runtime/worker/commands.h"
#include "runtime/worker/worker.h"

namespace lockstep::runtime {
namespace {

constexpr double kMebibyte = 1024.0 * 1024.0;
constexpr int kMaxItems = 4096;  // as the scenario's schema allows

constexpr const char* kBatchSizeExamples =
    R"(Trains a few steps of the scenario as a job of one rank, each try in a process
of its own: doubling the batch until one does not fit, then bisecting.

Examples:
  lockstep-worker batch-size job.yaml
  lockstep-worker batch-size job.yaml --limit-mb 2000
  lockstep-worker batch-size job.yaml --first 32 --most 256
)";

// The last column of "    16      412 MiB  83.1": samples per second, or why the size does not fit.
std::string in_words(const ProbeResult& result) {
  using Outcome = ProbeResult::Outcome;
  switch (result.outcome) {
    case Outcome::fits:
      return fixed(result.samples_per_s, 1);
    case Outcome::over_limit:
      return "over the limit";
    case Outcome::out_of_memory:
      return "out of memory";
    case Outcome::killed:
      return "killed by the system, out of memory";
    case Outcome::failed:
      return "failed, not for lack of memory:";  // the reason follows
  }
  return "";
}

}  // namespace

BatchSizeCommand::BatchSizeCommand(CLI::App& app)
    : command_(app.add_subcommand("batch-size", "find the largest batch that fits into memory")) {
  command_->footer(kBatchSizeExamples);
  command_->add_option("SCENARIO", scenario_, "scenario file (YAML)")->required();
  command_
      ->add_option("--limit-mb", limit_mb_,
                   "resident memory of the process, in MiB; default: 90 % of what is free")
      ->check(CLI::PositiveNumber);
  command_->add_option("--first", first_, "batch to start with; default: 1")
      ->check(CLI::Range(1, kMaxItems));
  command_->add_option("--most", most_, "largest batch to try; default: 4096")
      ->check(CLI::Range(1, kMaxItems));
  command_->add_option("--steps", steps_, "steps of each try; default: 3")
      ->check(CLI::Range(2, 1000));
}

bool BatchSizeCommand::chosen() const { return command_->parsed(); }

int BatchSizeCommand::run() const {
  const auto scenario = load_scenario(scenario_);
  if (!scenario) return fail_with(scenario.error());
  WorkerOptions job;
  job.world_size = scenario->ranks;
  // As rank 0 of the whole job: a try is one process, and what the job refuses is refused at once.
  if (const Status runnable = check_runnable(*scenario, job); !runnable) {
    return fail_with(runnable.error());
  }
  if (first_ > most_) return fail_with(Error{"--first is larger than --most", {}, "raise --most"});

  ProbeOptions options;
  options.steps = steps_;
  // Without a limit the machine's own counts, less what others may take meanwhile.
  options.limit_bytes = static_cast<std::int64_t>(
      limit_mb_ > 0 ? limit_mb_ * kMebibyte
                    : kOfFreeMemory * static_cast<double>(free_memory_bytes()));
  std::printf("limit: %s of resident memory\n", bytes_text(options.limit_bytes).c_str());
  std::printf("%6s  %11s  samples/s\n", "batch", "peak memory");
  // Each try is a process of its own: memory that one has used does not count against the next, and
  // a try that is killed ends nothing else.
  BatchSizeSearch search(first_, most_);
  ProbeResult best;
  while (const auto size = search.next()) {
    options.batch_size = *size;
    const ProbeResult result = probe_batch_size(*scenario, options);
    std::printf("%6d  %11s  %s\n", *size, bytes_text(result.peak_bytes).c_str(),
                in_words(result).c_str());
    std::fflush(stdout);  // a try takes seconds, and the table may go to a file
    if (result.outcome == ProbeResult::Outcome::failed) {
      std::fprintf(stderr, "%s\n", result.why.c_str());
      return kExitException;
    }
    const bool fits = result.outcome == ProbeResult::Outcome::fits;
    // The search only goes up after a size that fits, so the last is the largest.
    if (fits) best = result;
    search.record(fits);
  }
  if (search.largest() == 0) {
    std::printf("no batch fits: raise --limit-mb, or choose a smaller model\n");
    return kExitException;
  }
  std::printf("largest batch that fits: %d%s (peak %s, %s samples/s)\n", search.largest(),
              search.largest() == most_ ? ", the largest that was to be tried" : "",
              bytes_text(best.peak_bytes).c_str(), fixed(best.samples_per_s, 1).c_str());
  return kExitFinished;
}

}  // namespace lockstep::runtime
