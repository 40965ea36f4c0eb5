#include "launch/job_runner.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/text.h"
#include "launch/end_mark.h"
#include "launch/run_folder.h"
#include "trace/load.h"
#include "verify/verify.h"

namespace lockstep {

namespace {

double seconds(Nanos time) { return static_cast<double>(time) / 1e9; }

std::vector<std::string> command_line(const Scenario& scenario, const JobOptions& options,
                                      int rank) {
  std::vector<std::string> out = {options.worker,
                                  "train",
                                  scenario.file,
                                  "--rank",
                                  std::to_string(rank),
                                  "--world-size",
                                  std::to_string(scenario.ranks),
                                  "--store",
                                  store_file(options.folder),
                                  "--trace",
                                  options.folder};
  out.insert(out.end(), options.more.begin(), options.more.end());
  return out;
}

class Job {
 public:
  Job(const Scenario& scenario, const JobOptions& options, Interrupts& interrupts)
      : scenario_(scenario),
        options_(options),
        interrupts_(interrupts),
        live_(options.folder, scenario.ranks),
        ended_(static_cast<std::size_t>(scenario.ranks), false) {}

  Status start() {
    began_ = monotonic_nanos();
    for (int rank = 0; rank < scenario_.ranks; ++rank) {
      Result<Process> worker =
          Process::spawn(command_line(scenario_, options_, rank), log_file(options_.folder, rank));
      if (!worker) return worker.error();
      workers_.push_back(std::move(*worker));
    }
    return Status::ok();
  }

  // Until every worker has ended.
  void follow(const OnProgress& on_progress) {
    while (!all_ended()) {
      const Nanos now = monotonic_nanos();
      const JobProgress& progress = live_.follow(now);
      if (on_progress) on_progress(progress, seconds(now - began_));
      if (const auto why = must_end(now)) {
        outcome_.end = *why;
        for (std::size_t rank = 0; rank < workers_.size(); ++rank)
          ended_by_us_.push_back(workers_[rank].running());
        end_all(workers_, options_.grace);
        all_ended();
        break;
      }
      std::this_thread::sleep_for(options_.poll);
    }
    outcome_.wall_s = seconds(monotonic_nanos() - began_);
  }

  // Judges what they left.
  Result<JobOutcome> conclude() {
    ended_by_us_.resize(workers_.size(), false);
    bool all_well = true;
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      const int rank = static_cast<int>(i);
      outcome_.workers.push_back({rank, *workers_[i].poll(), ended_by_us_[i],
                                  log_file(options_.folder, rank),
                                  read_worker_numbers(result_file(options_.folder, rank))});
      all_well = all_well && workers_[i].poll()->success();
    }
    if (outcome_.end == JobEnd::completed && !all_well) outcome_.end = JobEnd::failed;
    std::error_code ignored;
    std::filesystem::remove(store_file(options_.folder), ignored);
    Result<Run> run = load_run({options_.folder});
    if (!run) return no_traces();
    outcome_.run = std::move(*run);
    outcome_.report = verify(outcome_.run);
    return std::move(outcome_);
  }

 private:
  bool all_ended() {
    bool all = true;
    for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
      if (!ended_[rank] && !workers_[rank].running()) note_end(rank);
      all = all && ended_[rank];
    }
    return all;
  }

  // A worker that a signal ended had no time to write its end mark. Workers that failed before they
  // had a ring file leave nothing to mark.
  void note_end(std::size_t rank) {
    ended_[rank] = true;
    (void)mark_killed(ring_file(options_.folder, static_cast<int>(rank)));
  }

  // Why the job is to be ended now; nothing where it may go on.
  std::optional<JobEnd> must_end(Nanos now) {
    if (const int signal = interrupts_.poll(); signal != 0) {
      outcome_.interrupted_by = signal;
      return JobEnd::interrupted;
    }
    if (const auto proof = live_.look(now, ended_)) {
      outcome_.proof_s = proof->seconds;
      return JobEnd::stopped;
    }
    if (seconds(now - began_) > scenario_.limits.total_s) return JobEnd::timed_out;
    return std::nullopt;
  }

  Error no_traces() const {
    std::string said;
    for (const WorkerOutcome& worker : outcome_.workers) {
      const std::vector<std::string> lines = last_lines(worker.log, 3);
      said = "rank " + std::to_string(worker.rank) + " " + to_string(worker.end);
      for (const std::string& line : lines) said += "\n    " + line;
      if (!lines.empty()) break;
    }
    if (outcome_.interrupted_by != 0) said = "interrupted before the workers began";
    return {"no worker left a trace: " + said,
            {options_.folder},
            "mend what the worker says; all of it is in the *.log files there"};
  }

  const Scenario& scenario_;
  const JobOptions& options_;
  Interrupts& interrupts_;
  LiveVerifier live_;
  std::vector<Process> workers_;
  std::vector<bool> ended_;
  std::vector<bool> ended_by_us_;  // filled when the job is ended
  Nanos began_ = 0;
  JobOutcome outcome_;
};

}  // namespace

Status check_startable(const Scenario& scenario) {
  if (scenario.ranks <= kRanksOnOneMachine) return Status::ok();
  return Error{plural(static_cast<std::uint64_t>(scenario.ranks), "process", "processes") +
                   " are more than one machine is asked to run (" +
                   std::to_string(kRanksOnOneMachine) + ")",
               {scenario.file},
               "`lockstep derive` says whether the job can hang, without running it"};
}

Result<JobOutcome> run_job(const Scenario& scenario, const JobOptions& options,
                           Interrupts& interrupts, const OnProgress& on_progress) {
  if (const Status ok = check_startable(scenario); !ok) return ok.error();
  Job job(scenario, options, interrupts);
  if (const Status started = job.start(); !started) return started.error();
  job.follow(on_progress);
  return job.conclude();
}

}  // namespace lockstep
