#include "runtime/study/run_study.h"

#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "base/files/write_file.h"
#include "base/interrupts.h"
#include "base/text.h"
#include "reports/output_targets.h"
#include "reports/studies/study_table.h"
#include "runtime/job/scenario_variants.h"
#include "runtime/launch/job_runner.h"
#include "runtime/launch/this_machine.h"
#include "runtime/study/figures.h"

namespace lockstep::runtime {

namespace {

// A run whose values were watched: what it recorded, and its numbers.
struct Recorded {
  trace::Run run;
  RunFigures figures;

  Watched watched() const { return {&run, &figures}; }
};

struct StudyOptions {
  std::string worker;  // the worker program
  std::string folder;  // exists
  bool quiet = false;
};

class StudyRunner {
 public:
  StudyRunner(const Study& study, const StudyOptions& options, Interrupts& interrupts)
      : study_(study), options_(options), interrupts_(interrupts) {
    const std::size_t each = study.remedies.size() + 1;
    total_ = study.strategies.size() * each;
  }

  Status run() {
    StudyRun plain{.strategy = study_.strategies.front().name, .remedy = {}, .watched = true};
    Result<std::optional<Recorded>> alone = run_alone(plain, kAloneFolder);
    if (!alone) return alone.error();
    plain_ = std::move(*alone);
    for (const Variation& strategy : study_.strategies) {
      if (const Status ok = complete(strategy); !ok) return ok;
      for (const Variation& remedy : study_.remedies) {
        if (interrupts_.poll() != 0) return Status::ok();
        if (const Status ok = combine(strategy, remedy); !ok) return ok;
      }
    }
    return Status::ok();
  }

  const std::vector<reports::Combination>& combinations() const { return combinations_; }

 private:
  void progress(const std::string& what) {
    if (options_.quiet) return;
    std::cerr << "study    " << ++done_ << " of " << total_ << ": " << printable(what) << "\n";
  }

  // The folder of a run, with its scenario. An error of the combination itself is `impossible`.
  struct Prepared {
    std::optional<Scenario> scenario;
    std::string folder;
    std::string impossible;
  };
  Result<Prepared> prepare(const StudyRun& run, const std::string& folder) const {
    namespace fs = std::filesystem;
    Prepared out;
    out.folder = (fs::path(options_.folder) / folder).string();
    const std::string file = out.folder + "/scenario.yaml";
    const Result<std::string> text = scenario_text(study_, run, file);
    if (!text) {
      out.impossible = text.error().message;
      return out;
    }
    if (const Status made = make_folder(out.folder); !made) return made.error();
    if (const Status written = write_file(file, *text); !written) return written.error();
    Result<Scenario> scenario = load_scenario(file);
    if (!scenario) return scenario.error();
    out.scenario = std::move(*scenario);
    return out;
  }

  Result<JobOutcome> run_prepared(const Prepared& prepared, const std::vector<std::string>& more) {
    JobOptions options;
    options.worker = options_.worker;
    options.folder = prepared.folder;
    options.more = more;
    Scenario scenario = *prepared.scenario;
    if (!more.empty()) scenario.ranks = 1;
    return run_job(scenario, options, interrupts_, {});
  }

  // The same in one process; nothing where there is no such reference or it did not complete.
  Result<std::optional<Recorded>> run_alone(const StudyRun& run, const std::string& folder) {
    const Result<Prepared> prepared = prepare(run, folder);
    if (!prepared) return prepared.error();
    if (!prepared->scenario || !reference_of(*prepared->scenario)) return std::optional<Recorded>();
    Result<JobOutcome> outcome = run_prepared(*prepared, {"--reference"});
    if (!outcome) return outcome.error();
    if (outcome->end != JobEnd::completed) return std::optional<Recorded>();
    RunFigures figures = figures_of(*outcome);
    return std::optional<Recorded>(Recorded{std::move(outcome->run), std::move(figures)});
  }

  // The timed runs. Errors: as run_job.
  Status repeat(StudyRun run, const std::string& folder, reports::Combination& to) {
    std::vector<RunFigures> runs;
    run.watched = false;
    for (run.repeat = 0; run.repeat < study_.repeats; ++run.repeat) {
      const Result<Prepared> prepared =
          prepare(run, fmt::format("{}/run-{}", folder, run.repeat + 1));
      if (!prepared) return prepared.error();
      if (!prepared->scenario) {
        to.impossible = prepared->impossible;
        return Status::ok();
      }
      const Result<JobOutcome> outcome = run_prepared(*prepared, {});
      if (!outcome) return outcome.error();
      if (outcome->end == JobEnd::interrupted) break;
      runs.push_back(figures_of(*outcome));
    }
    if (!runs.empty()) add_runs(runs, to);
    return Status::ok();
  }

  Status complete(const Variation& strategy) {
    progress(strategy.name + ", no image missing");
    reports::Combination row;
    row.strategy = strategy.name;
    StudyRun run{.strategy = strategy.name, .remedy = {}, .complete = true};
    if (const Status ok =
            repeat(run, fmt::format("{}/{}", result_folder(strategy.name), kCompleteFolder), row);
        !ok)
      return ok;
    combinations_.push_back(std::move(row));
    return Status::ok();
  }

  Status combine(const Variation& strategy, const Variation& remedy) {
    progress(fmt::format("{}, {}", strategy.name, remedy.name));
    reports::Combination row;
    row.strategy = strategy.name;
    row.remedy = remedy.name;
    const std::string folder =
        fmt::format("{}/{}", result_folder(strategy.name), result_folder(remedy.name));
    StudyRun run{.strategy = strategy.name, .remedy = remedy.name, .watched = true};
    const Result<Prepared> prepared = prepare(run, folder + "/watched");
    if (!prepared) return prepared.error();
    if (!prepared->scenario) {
      row.impossible = prepared->impossible;
      combinations_.push_back(std::move(row));
      return Status::ok();
    }
    Result<JobOutcome> outcome = run_prepared(*prepared, {});
    if (!outcome) return outcome.error();
    if (outcome->end == JobEnd::interrupted) return Status::ok();
    const Recorded recorded{std::move(outcome->run), figures_of(*outcome)};
    if (!recorded.figures.completed) {
      row.end = recorded.figures.end;
      combinations_.push_back(std::move(row));
      return Status::ok();
    }
    const auto same = same_alone(run, remedy.name);
    if (!same) return same.error();
    if (plain_ && *same != nullptr) {
      row.accuracy = accuracy_of(recorded.watched(), (*same)->watched(), plain_->watched());
    }
    if (const Status ok = repeat(run, folder, row); !ok) return ok;
    combinations_.push_back(std::move(row));
    return Status::ok();
  }

  // One process with that remedy, run once for all strategies; nullptr where there is none.
  Result<const Recorded*> same_alone(const StudyRun& run, const std::string& remedy) {
    const auto known = alone_.find(remedy);
    if (known != alone_.end()) return known->second ? &*known->second : nullptr;
    Result<std::optional<Recorded>> recorded =
        run_alone(run, kAloneFolder + ("-" + result_folder(remedy)));
    if (!recorded) return recorded.error();
    const auto& kept = alone_.emplace(remedy, std::move(*recorded)).first->second;
    return kept ? &*kept : nullptr;
  }

  const Study& study_;
  const StudyOptions& options_;
  Interrupts& interrupts_;
  std::size_t done_ = 0, total_ = 0;
  std::optional<Recorded> plain_;                         // one process without remedy
  std::map<std::string, std::optional<Recorded>> alone_;  // … with each
  std::vector<reports::Combination> combinations_;
};

}  // namespace

reports::ExitStatus run_study(const Study& study, const std::string& folder, bool quiet,
                              const std::vector<std::string>& outputs) {
  const auto targets =
      reports::parse_output_targets(outputs, {"study", {"text", "json", "markdown"}});
  if (!targets) return reports::fail(targets.error());
  const Result<std::string> worker = find_worker(worker_search_of_this_process());
  if (!worker) return reports::fail(worker.error());
  if (const Status made = make_folder(folder); !made) return reports::fail(made.error());
  if (!quiet)
    std::cout << "study    " << printable(study.name) << "\n         traces and tables in "
              << printable(folder) << "\n"
              << std::flush;
  Interrupts interrupts;
  const StudyOptions options{*worker, folder, quiet};
  StudyRunner runner(study, options, interrupts);
  const Status ran = runner.run();
  const Status json =
      write_file(folder + "/study.json", reports::study_json(runner.combinations()));
  const Status table =
      write_file(folder + "/study.md", reports::study_markdown(runner.combinations()));
  if (!quiet) std::cout << "\n" << std::flush;
  const Status written =
      reports::write_targets(*targets, quiet, [&](const std::string& kind, bool) {
        if (kind == "json") return reports::study_json(runner.combinations());
        return kind == "text" ? reports::study_text(runner.combinations())
                              : reports::study_markdown(runner.combinations());
      });
  for (const Status& done : {ran, json, table, written})
    if (!done) return reports::fail(done.error(), reports::ExitStatus::own_failure);
  const int signal = interrupts.poll();
  return signal != 0 ? reports::interrupted_by(signal) : reports::ExitStatus::clean;
}

}  // namespace lockstep::runtime
