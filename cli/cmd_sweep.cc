// lockstep sweep: one job in many variants, each forecast as by `lockstep simulate SCENARIO` on
// machines, or as by `lockstep simulate plan` with calibrations. Options or a sweep file say which.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "base/ends_at_once.h"
#include "base/files/read_file.h"
#include "base/quantities.h"
#include "base/result.h"
#include "base/sha256.h"
#include "base/status_line.h"
#include "base/text.h"
#include "base/threads.h"
#include "base/tool_version.h"
#include "cli/cmd_simulate.h"
#include "cli/commands.h"
#include "cli/input_files.h"
#include "cli/report_options.h"
#include "reports/output_targets.h"
#include "reports/sweeps/report.h"
#include "runtime/forecast/sweep.h"
#include "runtime/job/study.h"
#include "runtime/launch/scenario_files.h"
#include "runtime/launch/this_machine.h"
#include "runtime/study/run_study.h"
#include "sim/sweep/book.h"
#include "sim/sweep/plan_grid.h"
#include "sim/sweep/scenario_grid.h"
#include "sim/sweep/search.h"
#include "sim/sweep/sweep_file.h"

namespace lockstep::cli {
namespace {

struct SweepCommand {
  std::string job;  // a scenario, a plan, a study, or a sweep file
  std::string folder, memory_limit;
  std::vector<std::string> machines, calibrations, varied;
  std::vector<sim::Axis> axes;  // of a sweep file; --vary adds to them
  std::string best;             // empty: samples_per_second
  sim::PointId trials = 0;      // 0: all
  std::optional<std::uint64_t> seed;
  int steps = 0;            // 0: the scenario's
  std::size_t workers = 0;  // 0: one for each processor
  bool meta = false, no_meta = false;
  std::vector<std::string> outputs;
  bool quiet = false;

  std::optional<int> asked_steps() const { return steps > 0 ? std::optional(steps) : std::nullopt; }
  std::size_t workers_or_all() const { return workers > 0 ? workers : processors(); }
  std::optional<bool> on_meta() const {
    return meta || no_meta ? std::optional(meta) : std::nullopt;
  }
};

struct SweepInputs {
  runtime::SweepSubject subject;
  sim::SweepIdentity identity;

  const sim::Variation& variation() const {
    return std::visit([](const auto& one) -> const sim::Variation& { return one.variation(); },
                      subject);
  }
  const sim::PlanGrid* plans() const { return std::get_if<sim::PlanGrid>(&subject); }
};

Result<std::vector<sim::Axis>> axes_of(const SweepCommand& command) {
  std::vector<sim::Axis> axes = command.axes;
  for (const std::string& text : command.varied) {
    Result<sim::Axis> axis = sim::parse_axis(text);
    if (!axis) return with_option("--vary", axis.error());
    axes.push_back(std::move(*axis));
  }
  return axes;
}

Result<SweepInputs> load_scenarios(const SweepCommand& command,
                                   const std::vector<sim::Axis>& axes) {
  if (!command.calibrations.empty())
    return Error{"--calibration is for plans, and this is a scenario",
                 {command.job},
                 "name what it runs on with --machine"};
  // Errors of the unchanged scenario are reported as by every command.
  const Result<runtime::Scenario> own = runtime::load_checked_scenario(command.job);
  if (!own) return own.error();
  if (command.machines.empty())
    return Error{"no machine is named", {}, "add --machine dgx-h100, or your own"};
  const Result<std::string> scenario = read_input(own->file);
  if (!scenario) return scenario.error();
  sim::SweepIdentity identity{
      std::string(tool_version()), sha256(*scenario), {}, command.asked_steps(), command.on_meta()};
  std::vector<sim::SourceFile> machines;
  for (const std::string& file : command.machines) {
    Result<std::string> text = sim::read_machine(file);
    if (!text) return with_option("--machine", text.error());
    const std::string name = to_utf8(file);  // it is kept as JSON
    // Rows are distinguished by this name.
    if (!identity.machines.emplace(name, sha256(*text)).second)
      return Error{fmt::format("--machine {} is given twice", printable(file)), {}, "name it once"};
    machines.push_back({name, std::move(*text)});
  }
  Result<sim::ScenarioGrid> plan =
      sim::ScenarioGrid::make({own->file, *scenario}, machines, axes, command.asked_steps());
  if (!plan) return plan.error();
  return SweepInputs{std::move(*plan), std::move(identity)};
}

Result<SweepInputs> load_plans(const SweepCommand& command, const std::vector<sim::Axis>& axes) {
  const auto of_scenarios = [&](const char* option, const char* fix) {
    return Error{
        fmt::format("{} is for scenarios, and this is a plan", option), {command.job}, fix};
  };
  if (!command.machines.empty())
    return of_scenarios("--machine", "name what it runs on with --calibration");
  if (command.steps > 0) return of_scenarios("--steps", "a plan covers one step: leave it out");
  if (command.on_meta()) return of_scenarios(command.meta ? "--meta" : "--no-meta", "leave it out");
  if (command.workers > 0) return of_scenarios("--jobs", "plans need no workers: leave it out");
  const Result<sim::PlanInputs> inputs = sim::load_plan(command.job, command.calibrations);
  if (!inputs) return inputs.error();
  sim::SweepIdentity identity{
      std::string(tool_version()), sha256(inputs->plan.text + inputs->manifest.text), {}, {}, {}};
  for (const sim::SourceFile& calibration : inputs->calibrations)
    identity.machines.emplace(calibration.file, sha256(calibration.text));
  Result<sim::PlanGrid> plans =
      sim::PlanGrid::make(inputs->plan, inputs->calibrations, axes, inputs->manifest.text);
  if (!plans) return plans.error();
  return SweepInputs{std::move(*plans), std::move(identity)};
}

// Returns `command` completed by its sweep file, if it names one; options take precedence. Errors:
// an invalid sweep file.
Result<SweepCommand> with_sweep_file(SweepCommand command) {
  const std::string file = command.job;
  const Result<std::string> text = read_input(file);
  if (!text) return command;  // the error is reported when the scenario is loaded
  Result<std::optional<sim::SweepFile>> read = sim::parse_sweep_file(*text, file);
  if (!read) return read.error();
  if (!*read) return command;
  sim::SweepFile& in_file = **read;
  // Paths in a sweep file are relative to its folder.
  const auto path = [&](const std::string& name) {
    return (std::filesystem::path(file).parent_path() / name).lexically_normal().string();
  };
  command.job = path(in_file.plan.empty() ? in_file.scenario : in_file.plan);
  std::error_code unknown;
  if (!in_file.plan.empty() && !std::filesystem::exists(command.job, unknown)) {
    // No file beside this one: a shipped plan, as on the command line.
    const Result<std::string> shipped = plan_or_own(in_file.plan);
    if (!shipped) return Error{shipped.error().message, {file}, shipped.error().fix};
    if (*shipped != in_file.plan) command.job = *shipped;
  }
  // An option replaces what the file says; only --vary adds to it.
  if (command.machines.empty())
    for (const std::string& name : in_file.machines)
      command.machines.push_back(sim::machine_seen_from(file, name));
  if (command.calibrations.empty())
    for (const std::string& name : in_file.calibrations)
      command.calibrations.push_back(sim::machine_seen_from(file, name));
  command.axes = std::move(in_file.axes);
  if (command.best.empty()) command.best = in_file.best.value_or("");
  if (command.memory_limit.empty()) command.memory_limit = in_file.memory_limit.value_or("");
  if (command.trials == 0) command.trials = static_cast<sim::PointId>(in_file.trials.value_or(0));
  if (!command.seed && in_file.seed) command.seed = static_cast<std::uint64_t>(*in_file.seed);
  if (command.steps == 0) command.steps = static_cast<int>(in_file.steps.value_or(0));
  return command;
}

// Reads the inputs. Errors: an option that does not apply to this kind of job; files that cannot be
// read or are invalid; those of ScenarioGrid::make() and PlanGrid::make().
Result<SweepInputs> load_sweep(const SweepCommand& command) {
  const Result<std::vector<sim::Axis>> axes = axes_of(command);
  if (!axes) return axes.error();
  const Result<std::string> text = read_input(command.job);
  // By its content: both are YAML files of any name.
  const bool of_plan = text && sim::is_plan(*text);
  return of_plan ? load_plans(command, *axes) : load_scenarios(command, *axes);
}

// Each trial is a row that is kept in memory and written to a file; larger grids are searched.
constexpr sim::PointId kMaxSweepTrials = 100'000;

constexpr const char* kSweepFooter = R"(Examples:
  Which strategy, on how many ranks, with which batch?
    lockstep sweep job.yaml --machine dgx-h100 -o sweep \
      --vary strategy=ddp,fsdp --vary ranks=2..64*2 \
      --vary train.batch_size=8,16,32 --steps 4
  How much would a faster network help?
    lockstep sweep job.yaml --machine dgx-h100 -o links \
      --vary machine.links.1.speed=1..8*2
  The best of a large grid, in 200 trials:
    lockstep sweep job.yaml --machine dgx-h100 -o best \
      --vary strategy=ddp,fsdp --vary ranks=1..256 \
      --vary train.batch_size=1..64 --trials 200 --memory-limit 80GB
  Which remedy is best, measured on real processes? A study says what to vary:
    lockstep sweep scenarios/remedies/study.yaml -o study
  How should a transformer be split over a cluster (no workers, seconds)?
    lockstep sweep llama3-70b -o cuts --vary tensor=1..8*2 \
      --vary pipeline.stages=1..16*2 --vary zero=1,3 --memory-limit 80GB

KEY is any key of a scenario (`lockstep scenario --schema`), with dots between
its parts and numbers for list elements; machine.KEY is one of the machine file.
For a plan (docs/reference/plan.md): its keys, and calibration.PARAMETER.
A..B*F multiplies, A..B+S adds. The same command with the same folder continues
where it stopped, also after Ctrl-C.

Exit status: 0 a point trains, or the study is done; 1 none trains, and some
hang or go wrong; 2 bad usage, or all points are refused; 4 the tool failed;
130 after Ctrl-C, with what was computed until then.
docs/sweep.md explains the search, the files and the sources.)";

reports::OutputForms forms() { return {"result", {"text", "json", "csv", "html"}}; }

Result<sim::Goal> goal_of(const SweepCommand& command) {
  sim::Goal out;
  for (const sim::Objective objective : sim::kObjectives)
    if (sim::to_string(objective) == command.best) out.objective = objective;
  if (command.memory_limit.empty()) return out;
  const Result<Bytes> limit = parse_bytes(command.memory_limit);
  if (!limit) return with_option("--memory-limit", limit.error());
  if (limit->value == 0)
    return Error{"--memory-limit: nothing fits in 0 bytes", {}, "give one, such as 80GB"};
  out.memory_limit = static_cast<double>(limit->value);
  return out;
}

void say_what_was_there(const sim::SweepFolder& folder, const SweepCommand& command) {
  if (folder.was_cut())
    std::cerr << "lockstep: the last line of " << printable(command.folder)
              << "/results.jsonl was cut off and is taken away\n";
  if (!command.quiet && !folder.rows().empty())
    std::cerr << "lockstep: " << printable(command.folder) << " has "
              << plural(folder.rows().size(), "point") << " already\n";
}

// If no point trains, the status says why: they are defective, we failed, or the input is unusable.
reports::ExitStatus status_of(const std::vector<sim::Row>& rows) {
  std::size_t trains = 0, defective = 0, failed = 0;
  for (const sim::Row& row : rows) {
    trains += row.outcome == sim::Outcome::trains ? 1U : 0U;
    defective += sim::is_defect(row.outcome) ? 1U : 0U;
    failed += row.outcome == sim::Outcome::failed ? 1U : 0U;
  }
  if (trains > 0) return reports::ExitStatus::clean;
  // A proven defect is an answer; a failure of ours may only hide one, so it comes after.
  if (defective > 0) return reports::ExitStatus::findings;
  return failed > 0 ? reports::ExitStatus::own_failure : reports::ExitStatus::bad_usage;
}

Status write_results(const reports::Summary& summary, const SweepCommand& command) {
  const auto targets = reports::parse_output_targets(command.outputs, forms());
  if (!targets) return targets.error();
  return reports::write_targets(
      *targets, command.quiet, [&](const std::string& kind, bool to_stdout) {
        if (kind == "csv") return reports::sweep_csv(summary);
        if (kind == "html") return reports::sweep_html(summary);
        if (kind == "json") return reports::sweep_json(summary);
        return reports::sweep_text(summary, reports::text_width(to_stdout));
      });
}

// A study is a sweep on real processes. Its file says what to vary, so options of simulated sweeps
// are refused.
Result<reports::ExitStatus> run_study_of(const runtime::Study& study, const SweepCommand& command) {
  const std::pair<const char*, bool> simulated[] = {
      {"--machine", !command.machines.empty()},
      {"--calibration", !command.calibrations.empty()},
      {"--vary", !command.varied.empty()},
      {"--best", !command.best.empty()},
      {"--trials", command.trials > 0},
      {"--seed", command.seed.has_value()},
      {"--steps", command.steps > 0},
      {"--jobs", command.workers > 0},
      {"--meta", command.meta},
      {"--no-meta", command.no_meta},
      {"--memory-limit", !command.memory_limit.empty()}};
  for (const auto& [option, given] : simulated)
    if (given)
      return Error{
          fmt::format(
              "{} is of simulated variants, and this is a study, which runs on real processes",
              option),
          {command.job},
          "leave it out: the file says what is varied"};
  return runtime::run_study(study, command.folder, command.quiet, command.outputs);
}

// A sweep whose inputs are read and whose folder is locked.
struct PreparedSweep {
  SweepCommand command;  // completed by its sweep file
  sim::Goal goal;
  SweepInputs inputs;
  std::string worker;  // empty for plans: they are priced by formula in this process
  sim::SweepFolder folder;
};

// Errors: those of the options and the inputs, a grid that is too large, no worker, a folder that
// cannot be used.
Result<PreparedSweep> prepare_sweep(const SweepCommand& asked) {
  const auto targets = reports::parse_output_targets(asked.outputs, forms());
  if (!targets) return targets.error();
  Result<SweepCommand> command = with_sweep_file(asked);
  if (!command) return command.error();
  const Result<sim::Goal> goal = goal_of(*command);
  if (!goal) return goal.error();
  Result<SweepInputs> inputs = load_sweep(*command);
  if (!inputs) return inputs.error();
  // "ranks=1..256" times "batch=1..64" times five strategies are 81,920 points; one more key is too
  // many.
  const sim::PointId points = inputs->variation().grid().size();
  if (command->trials == 0 && points > kMaxSweepTrials)
    return Error{fmt::format("this grid has {} points, too many to try all", grouped(points)),
                 {},
                 "search it: --trials 200"};
  Result<std::string> worker = inputs->plans() != nullptr
                                   ? std::string()
                                   : runtime::find_worker(runtime::worker_search_of_this_process());
  if (!worker) return worker.error();
  // Before hours of computing. Reports may be in the folder of the results, which is not there yet.
  if (const Status can = reports::check_writable(*targets, {command->folder}); !can)
    return can.error();
  Result<sim::SweepFolder> folder = sim::SweepFolder::open(command->folder, inputs->identity);
  if (!folder) return folder.error();
  if (const Status can = reports::check_writable(*targets); !can) return can.error();
  return PreparedSweep{std::move(*command), *goal, std::move(*inputs), std::move(*worker),
                       std::move(*folder)};
}

// Tries the points and writes the results: all of them, or those until Ctrl-C.
reports::ExitStatus run_prepared_sweep(PreparedSweep& sweep) {
  const SweepCommand& command = sweep.command;
  const sim::Variation& variation = sweep.inputs.variation();
  const sim::Grid& grid = variation.grid();
  const std::uint64_t seed = command.seed.value_or(1);
  const sim::PointId trials = command.trials == 0 ? grid.size() : command.trials;
  sim::Search search(grid, trials, seed);
  Interrupts interrupts;
  StatusLine line({.silent = command.quiet});
  sim::PointId done = 0;
  const auto advance = [&](std::size_t rows) {
    done += rows;
    line.show(
        fmt::format("{} of {} points", grouped(done), grouped(std::min(trials, grid.size()))));
  };
  sim::SweepBook book(variation, sweep.goal, sweep.folder, interrupts, advance);
  advance(0);
  const runtime::ComputePoints points = runtime::make_compute(
      sweep.inputs.subject, {sweep.worker, command.workers_or_all(), command.on_meta()}, book);
  const auto summary = [&](bool interrupted) {
    return reports::Summary{variation.name(),
                            sweep.inputs.plans() != nullptr,
                            variation.keys(),
                            variation.machines() > 1,
                            grid.size(),
                            search.exhaustive(),
                            seed,
                            interrupted,
                            sweep.goal,
                            book.rows()};
  };
  Result<bool> finished = false;
  {
    // What was tried until Ctrl-C is written: the same command continues from it. Between two
    // points this thread sees the signal. One point may take as long as the user's patience, so
    // another thread writes what there is, and the program ends before the point does.
    // It lets nobody have the book again.
    std::unique_lock<std::mutex> held;
    const EndsAtOnce ends([&] {
      held = book.hold();
      points.abandon();
      line.erase();
      if (const Status ok = write_results(summary(true), command); !ok) reports::fail(ok.error());
      std::cout << std::flush;
    });
    finished = runtime::try_points(points, book, search, sweep.goal);
  }
  line.erase();
  if (!finished) return reports::fail(finished.error(), reports::ExitStatus::own_failure);
  const reports::Summary all = summary(/*interrupted=*/!*finished);
  if (const Status ok = write_results(all, command); !ok)
    return reports::fail(ok.error(), reports::ExitStatus::own_failure);
  return *finished ? status_of(all.rows) : reports::interrupted_by(interrupts.poll());
}

Result<reports::ExitStatus> run_sweep_command(const SweepCommand& asked) {
  // Nothing where it is not a study; an error of a file that cannot be read is found again below,
  // worded for what the file should have been.
  const Result<std::optional<runtime::Study>> study = runtime::load_study(asked.job);
  if (study && *study) return run_study_of(**study, asked);
  // What is wrong with a study is not that it names no machine.
  if (!study && read_input(asked.job)) return study.error();
  Result<PreparedSweep> sweep = prepare_sweep(asked);
  if (!sweep) return sweep.error();
  say_what_was_there(sweep->folder, sweep->command);
  return run_prepared_sweep(*sweep);
}

// -o has one meaning in all commands, what to write: a report where it names a form or ends like
// one, else the folder of the results.
Status sort_outputs(SweepCommand& command) {
  std::vector<std::string> reports_given;
  for (std::string& given : command.outputs) {
    // "-o sweep" is a folder, "-o sweep.html" and "-o csv=-" are reports.
    if (given.find('=') == std::string::npos && !reports::parse_output_target(given, forms())) {
      if (!command.folder.empty() && command.folder != given)
        return Error{fmt::format("two folders are given: {} and {}", printable(command.folder),
                                 printable(given)),
                     {},
                     "name one with -o; a report has an ending: -o sweep.html"};
      command.folder = std::move(given);
    } else {
      reports_given.push_back(std::move(given));
    }
  }
  command.outputs = std::move(reports_given);
  if (!command.folder.empty()) return Status::ok();
  return Error{"no folder for the results is named", {}, "add -o DIR"};
}

reports::ExitStatus run_sweep(SweepCommand command) {
  StandardInput input;
  if (const Status taken = input.take(command.job); !taken) return reports::fail(taken.error());
  if (const Status sorted = sort_outputs(command); !sorted) return reports::fail(sorted.error());
  Result<std::string> job = plan_or_own(command.job);
  if (!job) return reports::fail(job.error());
  command.job = std::move(*job);
  const Result<reports::ExitStatus> status = run_sweep_command(command);
  return status ? *status : input.fail(status.error());
}

void add_outputs(CLI::App& command, SweepCommand& options) {
  command.add_option("--best", options.best, "The goal; default: samples_per_second")
      ->type_name("WHAT")
      ->check(CLI::IsMember({"step_time", "samples_per_second", "samples_per_second_per_rank"}));
  command
      .add_option(
          "--memory-limit", options.memory_limit,
          "Memory limit of a rank, e.g. 80GB; the limit in the\nmachine file applies as well")
      ->type_name("SIZE");
  command
      .add_option("-o,--output", options.outputs,
                  "DIR, which is needed: keep each result there at once;\n"
                  "the same command continues with what is there. And\n"
                  "the report: text, json, csv or html, by the ending\n"
                  "(plans.html) or as html=PATH; \"-\" is standard output")
      ->type_name("DIR|[KIND=]PATH")
      ->allow_extra_args(false);
  command.add_flag("-q,--quiet", options.quiet, "Do not print the text");
}

}  // namespace

void add_sweep(CLI::App& app, reports::ExitStatus& status) {
  CLI::App* command = app.add_subcommand("sweep", "Compare many variants of a job, best first");
  const auto options = std::make_shared<SweepCommand>();
  command
      ->add_option(
          "JOB", options->job,
          "The job to vary: a scenario; a plan, or the name of a\nshipped plan; or a sweep file or "
          "study, which also\nhold options")
      ->type_name("")
      ->required();
  command
      ->add_option(
          "--machine", options->machines,
          "The machine: a file, or the name of a shipped one:\ndgx-h100; several are compared")
      ->type_name("NAME|FILE")
      ->allow_extra_args(false);
  command
      ->add_option("--calibration", options->calibrations,
                   "For a plan: the calibration to use instead of its\nown; several are compared")
      ->type_name("NAME|FILE")
      ->allow_extra_args(false);
  command
      ->add_option("--vary", options->varied,
                   "A key and its values: ranks=2..16*2; several keys:\nall combinations")
      ->type_name("KEY=VALUES")
      ->allow_extra_args(false);
  command->add_option("--output-dir", options->folder, "The same as -o DIR")->type_name("DIR");
  command
      ->add_option("--trials", options->trials,
                   "Try at most N points: if the grid has more, search\ninstead of trying all")
      ->type_name("N")
      ->check(CLI::Range(sim::PointId{1}, kMaxSweepTrials));
  // CLI11 would take -1 for a large number.
  command->add_option("--seed", options->seed, "Seed of the search; default: 1")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{0}, INT64_MAX).description(""));
  command->add_option("--steps", options->steps, "Number of steps; default: the scenario's")
      ->type_name("N")
      ->check(CLI::Range(1, 100000));
  command
      ->add_option("-j,--jobs", options->workers,
                   "Workers at a time; default: one per processor.\nPlans need none")
      ->type_name("N")
      ->check(CLI::Range(1, 256));
  add_meta_options(*command, options->meta, options->no_meta);
  add_outputs(*command, *options);
  command->footer(kSweepFooter);
  command->callback([options, &status] { status = run_sweep(*options); });
}

}  // namespace lockstep::cli
