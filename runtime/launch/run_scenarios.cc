#include "runtime/launch/run_scenarios.h"

#include <ctime>
#include <filesystem>
#include <iostream>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/files/write_file.h"
#include "base/status_line.h"
#include "base/terminal.h"
#include "base/text.h"
#include "reports/filter/filter.h"
#include "reports/findings/comparison_report.h"
#include "reports/findings/reports.h"
#include "runtime/job/scenario.h"
#include "runtime/job/study.h"
#include "runtime/launch/job_runner.h"
#include "runtime/launch/run_folder.h"
#include "runtime/launch/run_summary.h"
#include "runtime/launch/scenario_files.h"
#include "runtime/launch/this_machine.h"

namespace lockstep::runtime {

namespace {

// How one scenario's run ended.
struct FinishedRun {
  JobOutcome outcome;
  reports::ExitStatus status = reports::ExitStatus::clean;
};

class Runner {
 public:
  explicit Runner(const RunOptions& options)
      : options_(options),
        // A report on standard output ("json=-") must not be mixed with other text.
        stream_(reports::takes_stdout(options.report) ? std::cerr : std::cout) {}

  reports::ExitStatus run() {
    if (const Status ready = prepare(); !ready)
      return reports::fail(renamed(ready.error(), options_.name_of));
    Interrupts interrupts;
    reports::ExitStatus worst = reports::ExitStatus::clean;
    std::vector<TableRow> rows;
    for (const Scenario& scenario : scenarios_) {
      const Result<FinishedRun> finished = run_one(scenario, interrupts);
      if (!finished) {
        reports::fail(renamed(finished.error(), options_.name_of),
                      reports::ExitStatus::own_failure);
        worst = reports::ExitStatus::own_failure;
        if (interrupts.poll() != 0) break;
        continue;
      }
      rows.push_back(table_row(scenario, finished->outcome));
      worst = worse(worst, finished->status);
      if (interrupts.poll() != 0) break;
    }
    if (scenarios_.size() > 1 && !options_.report.quiet) stream_ << table(rows) << std::flush;
    if (!references_.empty() && !options_.report.quiet) {
      stream_ << "\nfinal losses, compared with one process that has all batches:\n"
              << reports::reference_table(references_, stdout_columns()) << std::flush;
    }
    if (const int signal = interrupts.poll(); signal != 0) return reports::interrupted_by(signal);
    return worst;
  }

 private:
  // Finds, loads and checks everything before anything is started.
  Status prepare() {
    if (const Status outputs = reports::check_outputs(options_.report, {options_.output_dir});
        !outputs)
      return outputs.error();
    if (options_.check && options_.report.filter.any())
      return Error{"--check compares with everything that is found",
                   {},
                   "leave out --only, --disable, --suppressions and --baseline"};
    Result<reports::Filter> filter = reports::load_filter(options_.report.filter);
    if (!filter) return filter.error();
    filter_ = std::move(*filter);
    if (const Status loaded = load_scenarios(); !loaded) return loaded.error();
    const bool to_files =
        !options_.report.outputs.empty() || !options_.report.filter.write_baseline.empty();
    if (scenarios_.size() > 1 && to_files)
      return Error{"--output and --write-baseline are for one scenario",
                   {},
                   "every run's folder holds its report.json; name the parent with --output-dir"};
    const WorkerSearch search = worker_search_of_this_process();
    Result<std::string> worker = find_worker(search);
    if (!worker) return worker.error();
    worker_ = *worker;
    fork_ranks_ = search.named.empty();
    return Status::ok();
  }

  // Studies among several files are named and left out: another command runs them.
  Status load_scenarios() {
    const Result<std::vector<std::string>> files = scenario_files(options_.paths);
    if (!files) return files.error();
    const std::optional<int> gpus = count_gpus(gpu_search_of_this_process());
    std::vector<std::string> studies;
    for (const std::string& file : *files) {
      const Result<std::optional<Study>> study = load_study(file);
      if (!study) return study.error();
      if (*study) {
        studies.push_back(file);
        continue;
      }
      Result<Scenario> scenario = load_checked_scenario(file);
      if (!scenario) return scenario.error();
      if (options_.share_gpus) scenario->share_gpus |= scenario->backend == Scenario::Backend::nccl;
      if (const Status ok = check_startable(*scenario, gpus); !ok) return ok.error();
      if (options_.check && !scenario->expect)
        return Error{"--check needs something to compare with", {file}, "add \"expect:\""};
      scenarios_.push_back(std::move(*scenario));
    }
    if (!studies.empty() && scenarios_.empty())
      return Error{"this is a study of many runs",
                   {studies.front()},
                   fmt::format("run it with `lockstep sweep {} -o DIR`", studies.front())};
    for (const std::string& file : studies)
      stream_ << printable(file) << " is a study and left out: `lockstep sweep` runs it\n";
    return Status::ok();
  }

  Result<std::string> make_own_folder(const Scenario& scenario) const {
    namespace fs = std::filesystem;
    const fs::path named = options_.output_dir;
    const bool several = scenarios_.size() > 1;
    if (!named.empty() && !several) return make_run_folder(named.string(), scenario, false);
    if (!named.empty())
      return make_run_folder((named / fs::path(scenario.file).stem()).string(), scenario, true);
    const std::string name = run_folder_name(scenario.file, std::time(nullptr));
    return make_run_folder((fs::path(kRunsFolder) / name).string(), scenario, true);
  }

  Result<FinishedRun> run_one(const Scenario& scenario, Interrupts& interrupts) {
    const Result<std::string> folder = make_own_folder(scenario);
    if (!folder) return folder.error();
    if (!options_.report.quiet)
      stream_ << "running  " << printable(scenario.name) << "\n         " << job_in_words(scenario)
              << "\n         traces in " << printable(*folder) << "\n"
              << std::flush;
    StatusLine line({.silent = options_.report.quiet, .log = true});
    RunProgress progress(
        line, {.ranks = scenario.ranks, .steps = scenario.replays() ? 0 : scenario.train.steps});
    JobOptions options;
    options.worker = worker_;
    options.fork_ranks = fork_ranks_;
    options.folder = *folder;
    Result<JobOutcome> outcome =
        run_job(scenario, options, interrupts,
                [&](const JobProgress& now, double elapsed_s) { progress.update(now, elapsed_s); });
    line.erase();
    if (!outcome) return outcome.error();
    reports::FilteredReport report =
        reports::filtered(std::move(outcome->report), outcome->run, filter_, reports::today_utc());
    if (const Status status = print_result(*folder, scenario.file, *outcome, report); !status)
      return status.error();
    outcome->report = report.report;
    reports::ExitStatus status = judge(scenario, *outcome);
    if (options_.reference && outcome->end != JobEnd::interrupted) {
      const Result<reports::ExitStatus> compared =
          compare_with_reference(scenario, *outcome, report, options, interrupts);
      if (!compared) return compared.error();
      status = worse(status, *compared);
    }
    return FinishedRun{std::move(*outcome), status};
  }

  // Trains the reference, adds its row to the table, and writes the reports once more, with the
  // comparison.
  Result<reports::ExitStatus> compare_with_reference(const Scenario& scenario,
                                                     const JobOutcome& outcome,
                                                     const reports::FilteredReport& report,
                                                     const JobOptions& options,
                                                     Interrupts& interrupts) {
    Result<ReferenceRun> made = run_reference(scenario, outcome, options, interrupts);
    if (!made) return made.error();
    if (!options_.report.outputs.empty()) {
      reports::ReportOptions with = options_.report;
      with.quiet = true;
      with.supplement = reports::reference_supplement(made->why_none, made->comparison);
      if (const Status written = reports::write_reports(report, outcome.run, with); !written)
        return written.error();
    }
    if (made->why_none.empty() && !options_.report.quiet) {
      stream_ << "\nagainst one process with all batches (in " << printable(made->folder) << "):\n"
              << reports::comparison_text(made->comparison, 24, stdout_columns()) << std::flush;
    }
    references_.push_back({std::filesystem::path(scenario.file).stem().string(),
                           std::move(made->why_none), made->loss,
                           made->comparison.first_difference});
    switch (reports::verdict_of(references_.back())) {
      case reports::ReferenceVerdict::loss_differs:
      case reports::ReferenceVerdict::values_differ:
        return reports::ExitStatus::findings;
      case reports::ReferenceVerdict::no_loss:
        return reports::ExitStatus::inconclusive;
      case reports::ReferenceVerdict::agrees:
      case reports::ReferenceVerdict::no_reference:
        break;
    }
    return reports::ExitStatus::clean;
  }

  // Writes the report and the summary.
  Status print_result(const std::string& folder, const std::string& scenario,
                      const JobOutcome& outcome, const reports::FilteredReport& report) {
    const Status kept = write_file(folder + "/report.json", reports::json_report(report));
    if (!kept) return kept;
    if (!options_.report.quiet) stream_ << "\n" << std::flush;
    reports::ReportOptions now = options_.report;
    now.scenario = scenario;
    // What goes to standard output is written once: with --reference, when that has been trained.
    if (options_.reference && outcome.end != JobEnd::interrupted && reports::takes_stdout(now)) {
      now.quiet = true;
      std::erase_if(now.outputs,
                    [](const std::string& o) { return o == "-" || o.ends_with("=-"); });
    }
    const Status written = reports::write_reports(report, outcome.run, now);
    if (!written) return written;
    if (!options_.report.quiet) stream_ << "\n" << run_summary(outcome) << std::flush;
    return Status::ok();
  }

  // With --check: whether it went as expected. Else as the report says; a job that did not complete
  // is never clean, even if its traces show nothing.
  reports::ExitStatus judge(const Scenario& scenario, const JobOutcome& outcome) {
    if (options_.check && outcome.end != JobEnd::interrupted) {
      const std::vector<std::string> differing = differences(*scenario.expect, outcome);
      for (const std::string& difference : differing)
        std::cerr << printable(options_.name_of(scenario.file)) << ": " << difference << "\n";
      if (differing.empty() && !options_.report.quiet) stream_ << "as expected\n";
      if (!options_.report.quiet) stream_ << "\n" << std::flush;
      return differing.empty() ? reports::ExitStatus::clean : reports::ExitStatus::findings;
    }
    const reports::ExitStatus status =
        reports::exit_status(outcome.report, options_.report.fail_on);
    const bool completed = outcome.end == JobEnd::completed;
    return status == reports::ExitStatus::clean && !completed && options_.report.fail_on != "never"
               ? reports::ExitStatus::inconclusive
               : status;
  }

  static reports::ExitStatus worse(reports::ExitStatus a, reports::ExitStatus b) {
    // The worst status of all scenarios counts: our own failure, findings, inconclusive, clean.
    const auto badness = [](reports::ExitStatus s) {
      if (s == reports::ExitStatus::own_failure) return 3;
      if (s == reports::ExitStatus::findings) return 2;
      return s == reports::ExitStatus::inconclusive ? 1 : 0;
    };
    return badness(a) >= badness(b) ? a : b;
  }

  const RunOptions& options_;
  std::ostream& stream_;
  reports::Filter filter_;
  std::vector<Scenario> scenarios_;
  std::vector<reports::ReferenceRow> references_;
  std::string worker_;
  bool fork_ranks_ = false;
};

}  // namespace

reports::ExitStatus run_scenarios(const RunOptions& options) { return Runner(options).run(); }

}  // namespace lockstep::runtime
