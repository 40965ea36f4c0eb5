#include "runtime/study/run_study.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/files/write_file.h"
#include "base/interrupts.h"
#include "base/text.h"
#include "reports/output_targets.h"
#include "reports/studies/study_table.h"
#include "runtime/job/scenario_variants.h"
#include "runtime/launch/job_runner.h"
#include "runtime/launch/this_machine.h"
#include "trace/run.h"
#include "verify/compare_runs.h"
#include "verify/rules/rules.h"

namespace lockstep::runtime {

namespace {

std::string end_of(const JobOutcome& outcome) {
  if (outcome.end == JobEnd::completed) return "completed";
  if (outcome.report.findings.empty()) {
    return outcome.end == JobEnd::timed_out ? "timed out" : "failed";
  }
  // Findings are sorted by severity: the first is why the job ended.
  const verify::Finding& leading = outcome.report.findings.front();
  std::string out = std::string(verify::rule(leading.rule).name);
  if (leading.step) out += fmt::format(" at step {}", *leading.step);
  return out;
}

// Calls outside of steps (start, evaluation) are not counted.
double bytes_per_step(const trace::Run& run) {
  double bytes = 0;
  std::size_t steps = 0;
  for (const trace::RankTrace& trace : run.ranks) {
    // A mean over ranks and steps: the steps of all ranks are counted, since one that died made
    // fewer.
    steps += trace.steps.size();
    for (const trace::Call& call : trace.calls) {
      if (call.step != trace::kNone) bytes += trace::call_bytes(run, call);
    }
  }
  return steps == 0 ? 0 : bytes / static_cast<double>(steps);
}

// "image_encoder.layer1.0.conv1.weight", "image_proj.bias".
bool is_image_path(std::string_view name) { return name.starts_with("image"); }
bool is_text_path(std::string_view name) { return name.starts_with("text"); }
bool is_running_statistic(std::string_view name) {
  return name.ends_with("running_mean") || name.ends_with("running_var");
}

std::optional<double> share(double part, double whole) {
  // A path that did not move has no share of its way.
  if (whole > 0) return part / whole;
  return std::nullopt;
}

std::optional<double> travelled_share(const trace::Run& a, const trace::Run& b,
                                      const std::function<bool(std::string_view)>& counts) {
  const verify::Drift d = verify::drift_between(a, b, verify::Phase::param, counts);
  return share(d.apart, d.travelled);
}

std::optional<double> feature_drift(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return std::nullopt;
  const double size = std::inner_product(b.begin(), b.end(), b.begin(), 0.0);
  double apart = 0;
  for (std::size_t i = 0; i < a.size(); ++i) apart += (a[i] - b[i]) * (a[i] - b[i]);
  return share(std::sqrt(apart), std::sqrt(size));
}

struct Watched {
  const trace::Run* run = nullptr;
  const RunFigures* figures = nullptr;
};

// `same`: one process with the remedy; `plain`: one process without. All watched in every step.
reports::Accuracy accuracy_of(const Watched& run, const Watched& same, const Watched& plain) {
  reports::Accuracy out;
  // Against one process with the same remedy: what is left is the strategy's doing. Drifts are
  // against one without a remedy: what the remedy does to training.
  const verify::Comparison comparison = verify::compare_runs(*run.run, *same.run);
  if (comparison.first_difference) {
    out.gradient_error = comparison.first_difference->error;
    out.first_difference = comparison.first_difference->name;
  } else {
    for (const verify::StepDifference& step : comparison.steps) {
      if (!step.gradient) continue;
      // Differences of rounding that grew since say nothing about the strategy.
      if (out.gradient_error && step.gradient->error > step.gradient->tolerance) break;
      out.gradient_error = std::max(out.gradient_error.value_or(0), step.gradient->error);
    }
  }
  out.image_drift = travelled_share(*run.run, *plain.run, is_image_path);
  out.text_drift = travelled_share(*run.run, *plain.run, is_text_path);
  const verify::Drift statistics =
      verify::drift_between(*run.run, *plain.run, verify::Phase::buffer, is_running_statistic);
  out.batch_norm_drift = share(statistics.apart, statistics.size);
  out.feature_drift = feature_drift(run.figures->image_sketches, plain.figures->image_sketches);
  return out;
}

}  // namespace

RunFigures figures_of(const JobOutcome& outcome) {
  RunFigures out;
  out.completed = outcome.end == JobEnd::completed;
  out.end = end_of(outcome);
  out.bytes_per_step = bytes_per_step(outcome.run);
  double losses = 0;
  std::size_t ranks = 0;
  for (const WorkerOutcome& worker : outcome.workers) {
    if (!worker.numbers) continue;
    const WorkerNumbers& n = *worker.numbers;
    // A synchronous job is as fast as its slowest rank.
    out.step_ms = std::max(out.step_ms, n.step_ms_median);
    out.peak_bytes = std::max(out.peak_bytes, static_cast<double>(n.peak_rss_bytes));
    if (n.last_loss) {
      losses += *n.last_loss;
      ++ranks;
    }
    if (n.retrieval && n.retrieval->items > 0) {
      out.recall_at_1 = n.retrieval->recall_at_1;
      out.image_sketches = n.retrieval->image_sketches;
    }
  }
  if (ranks > 0) out.loss = losses / static_cast<double>(ranks);
  return out;
}

std::optional<reports::Spread> spread_of(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  // For an even number, the mean of the middle two, unlike base's median(): repeats are few, and
  // taking the upper one would be biased.
  return reports::Spread{(values[(n - 1) / 2] + values[n / 2]) / 2, values.front(), values.back()};
}

void add_runs(const std::vector<RunFigures>& runs, reports::Combination& to) {
  std::vector<double> step_ms, bytes, peak, loss, recall;
  to.completed = true;
  to.end = "completed";
  to.repeats = runs.size();
  for (const RunFigures& run : runs) {
    if (!run.completed) {
      // The first that failed says why; a combination that hangs in one of its repeats hangs.
      if (to.completed) to.end = run.end;
      to.completed = false;
      continue;
    }
    step_ms.push_back(run.step_ms);
    bytes.push_back(run.bytes_per_step);
    peak.push_back(run.peak_bytes);
    if (run.loss) loss.push_back(*run.loss);
    if (run.recall_at_1) recall.push_back(*run.recall_at_1);
  }
  to.step_ms = spread_of(step_ms);
  to.bytes_per_step = spread_of(bytes);
  to.peak_bytes = spread_of(peak);
  to.loss = spread_of(loss);
  to.recall_at_1 = spread_of(recall);
}

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
    // And one without a missing image, which is what the remedies are measured against.
    const std::size_t each = study.remedies.size() + 1;
    total_ = study.strategies.size() * each;
  }

  Status run() {
    StudyRun plain{.strategy = study_.strategies.front().name, .remedy = {}, .watched = true};
    // Without a strategy it does not matter which one is named.
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
    // A study varies blindly: some remedies contradict some strategies, and the table says so.
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
    // "--reference": one worker, which reads the batches of all the scenario's ranks.
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
    // Watching values takes time, so the watched run is not one of those that are timed.
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
    progress(fmt::format("{}, no image missing", strategy.name));
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
    // A combination that hangs once is not run again for its times.
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
        run_alone(run, kAloneFolder + fmt::format("-{}", result_folder(remedy)));
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
  if (const Status can = reports::check_writable(*targets); !can) return reports::fail(can.error());
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
      reports::write_targets(*targets, quiet, [&](const std::string& kind, bool to_stdout) {
        if (kind == "json") return reports::study_json(runner.combinations());
        return kind == "text"
                   ? reports::study_text(runner.combinations(), reports::text_width(to_stdout))
                   : reports::study_markdown(runner.combinations());
      });
  // What was measured is written before an error is reported: a study takes hours.
  for (const Status& done : {ran, json, table, written})
    if (!done) return reports::fail(done.error(), reports::ExitStatus::own_failure);
  const int signal = interrupts.poll();
  return signal != 0 ? reports::interrupted_by(signal) : reports::ExitStatus::clean;
}

}  // namespace lockstep::runtime
