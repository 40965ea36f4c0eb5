#include "runtime/launch/job_runner.h"

#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/files/write_file.h"
#include "base/text.h"
#include "runtime/job/scenario.h"
#include "runtime/job/scenario_variants.h"
#include "runtime/launch/forked_ranks.h"
#include "runtime/launch/run_folder.h"
#include "runtime/launch/shared_segments.h"
#include "runtime/launch/this_machine.h"
#include "trace/load.h"
#include "verify/verify.h"

namespace lockstep::runtime {

namespace {

// If nothing moved for this long, the job hangs; if less, it was on its way when it was ended.
constexpr double kStandstillS = 5;
// Ranks that wait for one that failed fail with it, because its connections close; queued calls do
// not, and never complete. If nothing moved for this long after a failure, nothing will.
constexpr double kAfterFailureS = 2;
// How often to look whether the ranks are forked.
constexpr std::chrono::milliseconds kForking(5);
// How long to wait for workers to stop after SIGSTOP.
constexpr std::chrono::milliseconds kFreezing(500);

double seconds(trace::Nanos time) { return static_cast<double>(time) / 1e9; }

// `which`: "--rank" or "--fork-ranks", and its value.
std::vector<std::string> command_line(const Scenario& scenario, const JobOptions& options,
                                      const std::string& which, const std::string& value) {
  std::vector<std::string> out = {options.worker,
                                  "train",
                                  scenario.file,
                                  which,
                                  value,
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
        ended_(static_cast<std::size_t>(scenario.ranks), false) {
    outcome_.planned_steps = scenario.replays() ? 0 : scenario.train.steps;
    outcome_.times_mean_nothing = scenario.share_gpus;
  }

  Status start() {
    began_ = monotonic_nanos();
    // GPUs are left out: what their libraries do when they are loaded may not survive a fork.
    const bool on_cpus = scenario_.backend == Scenario::Backend::gloo;
    if (options_.fork_ranks && on_cpus && scenario_.ranks > 1) return start_forked();
    for (int rank = 0; rank < scenario_.ranks; ++rank) {
      SpawnOptions options;
      options.helpers_end_with_it = true;
      if (scenario_.share_gpus) options.environment = sharing_environment(rank);
      Result<Process> worker =
          Process::spawn(command_line(scenario_, options_, "--rank", std::to_string(rank)),
                         log_file(options_.folder, rank), options);
      if (!worker) return worker.error();
      workers_.push_back(std::move(*worker));
    }
    return Status::ok();
  }

  // Follows the job until every worker has ended.
  void follow(const OnProgress& on_progress) {
    while (!all_ended()) {
      const trace::Nanos now = monotonic_nanos();
      const JobProgress& progress = live_.follow(now);
      if (on_progress) on_progress(progress, seconds(now - began_));
      segments_.look(running());
      if (const auto why = must_end(now)) {
        outcome_.end = *why;
        end_workers(now);
        break;
      }
      std::this_thread::sleep_for(options_.poll);
    }
    // Once more: what the ranks recorded since the last poll.
    outcome_.steps = live_.follow(monotonic_nanos()).steps;
    outcome_.wall_s = seconds(monotonic_nanos() - began_);
    segments_.remove();
  }

  // Judges the traces that the workers left.
  Result<JobOutcome> conclude() {
    ended_by_us_.resize(workers_.size(), false);
    bool all_well = true;
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      const int rank = static_cast<int>(i);
      outcome_.workers.push_back({rank, *workers_[i].poll(), ended_by_us_[i],
                                  log_file(options_.folder, rank),
                                  read_worker_numbers(result_file(options_.folder, rank)),
                                  hanging_location(stack_file(options_.folder, rank))});
      all_well = all_well && workers_[i].poll()->success();
    }
    if (outcome_.end == JobEnd::completed && !all_well) outcome_.end = JobEnd::failed;
    std::error_code ignored;
    std::filesystem::remove(store_file(options_.folder), ignored);
    if (never_began_) return words_of(*never_began_);
    Result<trace::Run> run = trace::load_run({options_.folder});
    if (!run) return no_traces();
    outcome_.run = std::move(*run);
    outcome_.report = verify::verify(outcome_.run);
    // If all ranks were killed, the first by itself, the traces no longer show that the others
    // waited for it. The proof, made while they ran, does.
    if (proven_ && !verify::proves_stuck(outcome_.report)) outcome_.report = std::move(*proven_);
    return std::move(outcome_);
  }

 private:
  // The worker that forks the ranks ends when it has.
  Status start_forked() {
    const std::string pids = options_.folder + "/pids";
    const Subreaper parent_of_the_ranks;
    Result<Process> forker = Process::spawn(command_line(scenario_, options_, "--fork-ranks", pids),
                                            log_file(options_.folder, 0));
    if (!forker) return forker.error();
    while (forker->running()) {
      if (const auto why = must_end(monotonic_nanos())) {
        outcome_.end = *why;
        forker->signal(SIGKILL);  // and what it has forked, which is still in its group
      }
      std::this_thread::sleep_for(kForking);
    }
    if (!forker->poll()->success()) {
      if (outcome_.end != JobEnd::completed) return no_traces();
      workers_.push_back(std::move(*forker));  // in rank 0's place, whose log has its words
      return Status::ok();
    }
    Result<std::vector<Process>> ranks = take_forked_ranks(pids, scenario_.ranks);
    if (!ranks) return ranks.error();
    workers_ = std::move(*ranks);
    outcome_.end = JobEnd::completed;  // follow() looks again
    return Status::ok();
  }

  bool all_ended() {
    bool all = true;
    for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
      if (!ended_[rank] && !workers_[rank].running()) note_end(rank);
      all = all && ended_[rank];
    }
    return all;
  }

  std::vector<pid_t> running() {
    std::vector<pid_t> out;
    for (Process& worker : workers_) {
      if (worker.running()) out.push_back(worker.pid());
    }
    return out;
  }

  // A worker killed by a signal had no time to write its end mark: write it here. A worker that
  // failed before it created its ring file "never began", and the others would wait for it.
  void note_end(std::size_t rank) {
    ended_[rank] = true;
    const ProcessEnd& end = *workers_[rank].poll();
    failed_ = failed_ || !end.success();
    const std::string ring = ring_file(options_.folder, static_cast<int>(rank));
    std::error_code unknown;
    const bool refused = end.signal == 0 && end.exit_status == kWorkerRefusal;
    if (!end.success() && !never_began_ && (refused || !std::filesystem::exists(ring, unknown)))
      never_began_ = rank;
    (void)mark_ended(ring, trace::End::killed);
  }

  // The reason to end the job now; nothing if it may continue.
  std::optional<JobEnd> must_end(trace::Nanos now) {
    if (const int signal = interrupts_.poll(); signal != 0) {
      outcome_.interrupted_by = signal;
      return JobEnd::interrupted;
    }
    if (never_began_) return JobEnd::failed;  // the others would wait for it forever
    if (auto proof = live_.poll(now, ended_)) {
      outcome_.proof_s = proof->seconds;
      proven_ = std::move(proof->report);
      return JobEnd::stopped;
    }
    if (seconds(now - began_) > scenario_.limits.total_s) return JobEnd::timed_out;
    if (failed_ && seconds(now - live_.quiet_since()) >
                       std::min(kAfterFailureS, scenario_.limits.hang_after_s))
      return JobEnd::failed;
    return std::nullopt;
  }

  // Ends the workers that still run. Workers of a job that hangs get SIGTERM, and write their end
  // mark and stack. A job that moves is frozen and killed: if its ranks were signalled one by one,
  // they would record how the first ones' connections close.
  void end_workers(trace::Nanos now) {
    const std::optional<std::size_t> never_began = never_began_;
    for (Process& worker : workers_) ended_by_us_.push_back(worker.running());
    outcome_.quiet_s =
        seconds(std::max<trace::Nanos>(now - std::max(live_.quiet_since(), began_), 0));
    segments_.look(running(), /*closely=*/true);
    if (outcome_.end == JobEnd::stopped || (outcome_.end == JobEnd::failed && failed_) ||
        (outcome_.end == JobEnd::timed_out &&
         outcome_.quiet_s > std::min(kStandstillS, scenario_.limits.hang_after_s))) {
      end_all(workers_, options_.grace);
    } else {
      freeze_and_kill();
    }
    // Workers that we ended before they began are not the reason of the job's end.
    all_ended();
    never_began_ = never_began;
  }

  void freeze_and_kill() {
    stop_all(workers_, kFreezing);
    live_.follow(monotonic_nanos());
    // Now nothing moves, so one more poll is cheap. It may find that the job was stuck already.
    auto proof = never_began_ ? std::nullopt : live_.judge(monotonic_nanos());
    if (proof) {
      outcome_.proof_s = proof->seconds;  // stuck, but a limit or a signal came before the proof
      proven_ = std::move(proof->report);
      // SIGTERM first, so that it is pending when SIGCONT lets the worker run.
      for (Process& worker : workers_) worker.signal(SIGTERM);
      for (Process& worker : workers_) worker.signal(SIGCONT);
      end_all(workers_, options_.grace);
      return;
    }
    for (int rank = 0; rank < scenario_.ranks; ++rank)
      (void)mark_ended(ring_file(options_.folder, rank), trace::End::interrupted);
    kill_all(workers_);
  }

  // The error in the log of a worker that failed, or the log's last lines.
  Error words_of(std::size_t rank) const {
    const WorkerOutcome& worker = outcome_.workers[rank];
    const std::string who = fmt::format("rank {}", rank);
    if (auto error = last_error(worker.log)) {
      error->message = fmt::format("{}: {}", who, error->message);
      return *error;
    }
    std::string lines;
    for (const std::string& line : last_lines(worker.log, 3))
      lines += fmt::format("\n    {}", line);
    return {fmt::format("{} {} before it began{}", who, to_string(worker.end), lines),
            {worker.log},
            "fix what the worker reports; the log has all of it"};
  }

  Error no_traces() const {
    const std::string why = outcome_.interrupted_by != 0 ? "interrupted before the workers began"
                                                         : "the job ended before they began";
    return {fmt::format("no worker left a trace: {}", why),
            {options_.folder},
            "what the workers printed is in the *.log files there"};
  }

  const Scenario& scenario_;
  const JobOptions& options_;
  Interrupts& interrupts_;
  LiveVerifier live_;
  SharedSegments segments_;
  std::vector<Process> workers_;
  std::vector<bool> ended_;
  std::vector<bool> ended_by_us_;  // by rank; filled when the job is ended
  bool failed_ = false;            // some rank ended with an error
  // A rank that failed without a trace, or refused its job.
  std::optional<std::size_t> never_began_;
  trace::Nanos began_ = 0;
  std::optional<verify::Report> proven_;  // the report with the proof, if there is one
  JobOutcome outcome_;
};

}  // namespace

Status check_startable(const Scenario& scenario, std::optional<int> gpus) {
  const std::string ranks = plural(scenario.ranks, "rank");
  if (scenario.ranks > kRanksOnOneMachine) {
    return Error{fmt::format("{} are more than one machine is asked to run ({})",
                             plural(scenario.ranks, "process", "processes"), kRanksOnOneMachine),
                 {scenario.file},
                 "`lockstep derive` says whether the job can hang, without running it"};
  }
  if (const Status there = check_named_files(scenario); !there) return there.error();
  if (scenario.backend != Scenario::Backend::nccl || !gpus) return Status::ok();
  if (*gpus == 0) {
    return Error{
        "the backend is nccl, and this machine has no GPU that can be used (nvidia-smi and "
        "CUDA_VISIBLE_DEVICES show why)",
        {scenario.file},
        "write \"backend: gloo\", or run it where there is one"};
  }
  if (scenario.ranks > *gpus && !scenario.share_gpus) {
    return Error{fmt::format("{} of NCCL need a GPU each, and this machine has {}", ranks,
                             plural(*gpus, "GPU")),
                 {scenario.file},
                 "for testing let them share: --share-gpus, or \"gpus: shared\""};
  }
  return Status::ok();
}

Result<JobOutcome> run_job(const Scenario& scenario, const JobOptions& options,
                           Interrupts& interrupts, const OnProgress& on_progress) {
  if (const Status ok = check_startable(scenario, std::nullopt); !ok) return ok.error();
  Job job(scenario, options, interrupts);
  if (const Status started = job.start(); !started) return started.error();
  job.follow(on_progress);
  return job.conclude();
}

namespace {

std::string_view forward_dtype(Scenario::Train::Precision precision) {
  switch (precision) {
    case Scenario::Train::Precision::float32:
      return "float32";
    case Scenario::Train::Precision::bfloat16:
      return "bfloat16";
    case Scenario::Train::Precision::float16:
      return "float16";
  }
  return "float32";
}

}  // namespace

Result<ReferenceRun> run_reference(const Scenario& scenario, const JobOutcome& outcome,
                                   JobOptions options, Interrupts& interrupts) {
  ReferenceRun out;
  if (outcome.end != JobEnd::completed) {
    out.why_none = "the job did not finish";
    return out;
  }
  if (const Result<Scenario> possible = reference_of(scenario); !possible) {
    out.why_none = possible.error().message;
    return out;
  }
  Scenario alone = scenario;  // the worker turns it into the reference
  alone.ranks = 1;
  options.folder += "/reference";
  options.more = {"--reference"};
  if (const Status made = make_folder(options.folder); !made) return made.error();
  const Result<JobOutcome> reference = run_job(alone, options, interrupts, {});
  if (!reference) return reference.error();
  if (reference->end != JobEnd::completed) {
    return Error{"the reference did not finish", {log_file(options.folder, 0)}, "its log says why"};
  }
  out.folder = options.folder;
  out.comparison = verify::compare_runs(outcome.run, reference->run);
  out.loss =
      verify::final_loss(outcome.run, reference->run, forward_dtype(scenario.train.precision));
  return out;
}

}  // namespace lockstep::runtime
