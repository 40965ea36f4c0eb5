// lockstep sweep: one job in many variants, on many machines, each forecast as by
// `lockstep simulate SCENARIO`.
#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/read_file.h"
#include "base/sha256.h"
#include "base/text.h"
#include "cli/cmd_simulate.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/output_targets.h"
#include "cli/scenario_files.h"
#include "cli/sweep_folder.h"
#include "cli/sweep_run.h"
#include "launch/worker_program.h"
#include "reports/columns.h"
#include "reports/tool_version.h"
#include "sim/units.h"
#include "sweep/plan.h"
#include "sweep/report.h"
#include "sweep/search.h"
#include "sweep/sweep_file.h"

namespace lockstep {
namespace {

using sweep::Goal;
using sweep::Objective;
using sweep::PointId;

constexpr std::size_t kFileBytes = std::size_t{1} << 20U;
constexpr PointId kMostTrials = 100'000;

constexpr const char* kFooter = R"(Examples:
  Which strategy, on how many ranks, with which batch?
    lockstep sweep job.yaml --machine machines/dgx-h100.yaml -o plans \
      --vary strategy=ddp,fsdp --vary ranks=2..64*2 \
      --vary train.batch_size=8,16,32 --steps 4
  What would a faster network give?
    lockstep sweep job.yaml --machine machines/dgx-h100.yaml -o links \
      --vary machine.links.1.speed=1..8*2
  The best of a large grid, in 200 trials:
    lockstep sweep job.yaml --machine machines/dgx-h100.yaml -o best \
      --vary strategy=ddp,fsdp --vary ranks=1..256 \
      --vary train.batch_size=1..64 --trials 200 --memory-limit 80GB

KEY is any key of a scenario (`lockstep scenario --schema`), with dots between
its parts and list elements by number; machine.KEY is one of the machine file.
A..B*F multiplies, A..B+S adds. The same command on the same folder goes on
where it ended. docs/sweep.md has the search, the files and what it rests on.)";

struct SweepCommand {
  std::string scenario, folder, memory_limit;
  std::vector<std::string> machines, varied;
  std::vector<sweep::Axis> axes;  // of a sweep file; --vary adds to them
  std::string best;               // empty: samples_per_second
  PointId trials = 0;             // 0: all
  std::optional<std::uint64_t> seed;
  int steps = 0;  // 0: the scenario's
  std::size_t workers = 1;
  bool meta = false, no_meta = false;
  std::vector<std::string> outputs;
  bool quiet = false;

  std::optional<int> asked_steps() const { return steps > 0 ? std::optional(steps) : std::nullopt; }
  std::optional<bool> on_meta() const {
    return meta || no_meta ? std::optional(meta) : std::nullopt;
  }
};

OutputForms forms() { return {"result", {"text", "json", "csv", "html"}}; }

Result<Goal> goal_of(const SweepCommand& command) {
  Goal out;
  for (const Objective objective : sweep::kObjectives)
    if (to_string(objective) == command.best) out.objective = objective;
  if (command.memory_limit.empty()) return out;
  const Result<sim::Bytes> limit = sim::parse_bytes(command.memory_limit);
  if (!limit) return with_option("--memory-limit", limit.error());
  out.memory_limit = static_cast<double>(limit->value);
  return out;
}

// What a sweep file says, where the command names one, and its own options do not say it.
Result<SweepCommand> with_file(SweepCommand command) {
  const std::string file = command.scenario;
  const Result<std::string> text = read_file(file, kFileBytes);
  if (!text) return command;  // it is said of the scenario
  Result<std::optional<sweep::SweepFile>> read = sweep::parse_sweep_file(*text, file);
  if (!read) return read.error();
  if (!*read) return command;
  sweep::SweepFile& said = **read;
  // Its paths are as seen from where it lies.
  const auto path = [&](const std::string& name) {
    return (std::filesystem::path(file).parent_path() / name).lexically_normal().string();
  };
  command.scenario = path(said.scenario);
  if (command.machines.empty())
    for (const std::string& machine : said.machines) command.machines.push_back(path(machine));
  command.axes = std::move(said.axes);
  if (command.best.empty()) command.best = said.best.value_or("");
  if (command.memory_limit.empty()) command.memory_limit = said.memory_limit.value_or("");
  if (command.trials == 0) command.trials = static_cast<PointId>(said.trials.value_or(0));
  if (!command.seed && said.seed) command.seed = static_cast<std::uint64_t>(*said.seed);
  if (command.steps == 0) command.steps = static_cast<int>(said.steps.value_or(0));
  return command;
}

struct Loaded {
  sweep::Plan plan;
  SweepIdentity identity;
};

Result<Loaded> load(const SweepCommand& command) {
  std::vector<sweep::Axis> axes = command.axes;
  for (const std::string& text : command.varied) {
    Result<sweep::Axis> axis = sweep::parse_axis(text);
    if (!axis) return with_option("--vary", axis.error());
    axes.push_back(std::move(*axis));
  }
  // What is wrong with the scenario as it stands is said as by every command.
  const Result<Scenario> own = load_checked_scenario(command.scenario);
  if (!own) return own.error();
  const Result<std::string> scenario = read_file(own->file, kFileBytes);
  if (!scenario) return scenario.error();
  SweepIdentity identity{
      std::string(tool_version()), sha256(*scenario), {}, command.asked_steps(), command.on_meta()};
  std::vector<sweep::SourceFile> machines;
  for (const std::string& file : command.machines) {
    Result<std::string> text = read_file(file, kFileBytes);
    if (!text) return text.error();
    const std::string name = to_utf8(file);  // it is kept as JSON
    if (!identity.machines.emplace(name, sha256(*text)).second)
      return Error{"--machine " + printable(file) + " is given twice", {}, "name it once"};
    machines.push_back({name, std::move(*text)});
  }
  Result<sweep::Plan> plan =
      sweep::Plan::make({own->file, *scenario}, machines, axes, command.asked_steps());
  if (!plan) return plan.error();
  return Loaded{std::move(*plan), std::move(identity)};
}

// "12 of 48 points", on a terminal's line, removed at the end.
class SweepProgress {
 public:
  SweepProgress(bool silent, PointId total)
      : total_(total), silent_(silent || ::isatty(STDERR_FILENO) != 1) {
    show();
  }
  ~SweepProgress() {
    if (!silent_) std::cerr << "\r\x1b[K" << std::flush;
  }
  SweepProgress(const SweepProgress&) = delete;
  SweepProgress& operator=(const SweepProgress&) = delete;

  void known(std::size_t rows) {
    done_ += rows;
    show();
  }
  void advance() { known(1); }

 private:
  void show() const {
    if (!silent_)
      std::cerr << "\r\x1b[K" << grouped(done_) << " of " << grouped(total_) << " points"
                << std::flush;
  }

  PointId total_;
  PointId done_ = 0;
  bool silent_;
};

void say_what_was_there(const SweepFolder& folder, const SweepCommand& command) {
  if (folder.was_cut())
    std::cerr << "lockstep: the last line of " << printable(command.folder)
              << "/results.jsonl was cut off and is taken away\n";
  if (!command.quiet && !folder.rows().empty())
    std::cerr << "lockstep: " << printable(command.folder) << " has "
              << plural(folder.rows().size(), "point") << " already\n";
}

// Tries what the search asks for, until it or the user has enough.
Status try_points(SweepRun& run, sweep::Search& search, const Goal& goal, SweepProgress& progress) {
  for (auto points = search.next(); !points.empty(); points = search.next()) {
    std::size_t known = 0;
    for (const PointId point : points) known += run.find(point) != nullptr ? 1U : 0U;
    progress.known(known);
    if (const Status ok = run.compute(points, [&] { progress.advance(); }); !ok) return ok;
    if (run.interrupted()) return Status::ok();
    std::vector<sweep::Score> scores;
    for (const PointId point : points) scores.push_back(sweep::score(*run.find(point), goal));
    search.tell(scores);
  }
  return Status::ok();
}

// What no plan comes through is the plans' fault, or ours.
ExitStatus status_of(const std::vector<sweep::Row>& rows) {
  std::size_t trains = 0, hangs = 0, failed = 0;
  for (const sweep::Row& row : rows) {
    trains += row.outcome == sweep::Outcome::trains ? 1U : 0U;
    hangs += row.outcome == sweep::Outcome::hangs ? 1U : 0U;
    failed += row.outcome == sweep::Outcome::failed ? 1U : 0U;
  }
  if (trains > 0) return ExitStatus::clean;
  if (hangs > 0) return ExitStatus::findings;
  return failed > 0 ? ExitStatus::own_failure : ExitStatus::bad_usage;
}

Status write_results(const sweep::Summary& summary, const SweepCommand& command) {
  const auto targets = parse_output_targets(command.outputs, forms());
  if (!targets) return targets.error();
  return write_targets(*targets, command.quiet, [&](const std::string& kind, bool) {
    if (kind == "csv") return sweep_csv(summary);
    if (kind == "html") return sweep_html(summary);
    return kind == "json" ? sweep_json(summary) : sweep_text(summary);
  });
}

Result<ExitStatus> run(const SweepCommand& asked) {
  if (const auto targets = parse_output_targets(asked.outputs, forms()); !targets)
    return targets.error();
  const Result<SweepCommand> with_its_file = with_file(asked);
  if (!with_its_file) return with_its_file.error();
  const SweepCommand& command = *with_its_file;
  if (command.machines.empty())
    return Error{"no machine is named", {}, "add --machine machines/dgx-h100.yaml, or your own"};
  const Result<Goal> goal = goal_of(command);
  if (!goal) return goal.error();
  const Result<Loaded> loaded = load(command);
  if (!loaded) return loaded.error();
  const sweep::Grid& grid = loaded->plan.grid();
  if (command.trials == 0 && grid.size() > kMostTrials)
    return Error{"this grid has " + grouped(grid.size()) + " points, too many to try all",
                 {},
                 "search it: --trials 200"};
  const Result<std::string> worker = find_worker(worker_search_of_this_process());
  if (!worker) return worker.error();
  Result<SweepFolder> folder = SweepFolder::open(command.folder, loaded->identity);
  if (!folder) return folder.error();
  say_what_was_there(*folder, command);
  const std::uint64_t seed = command.seed.value_or(1);
  const PointId trials = command.trials == 0 ? grid.size() : command.trials;
  sweep::Search search(grid, trials, seed);
  Interrupts interrupts;
  SweepRun sweep_run(loaded->plan, {*worker, command.workers, command.on_meta(), *goal}, *folder,
                     interrupts);
  {
    SweepProgress progress(command.quiet, std::min(trials, grid.size()));
    if (const Status ok = try_points(sweep_run, search, *goal, progress); !ok)
      return fail(ok.error(), ExitStatus::own_failure);
  }
  sweep::Summary summary{loaded->plan.scenario_name(),
                         loaded->plan.keys(),
                         loaded->plan.machines() > 1,
                         grid.size(),
                         search.exhaustive(),
                         seed,
                         sweep_run.interrupted(),
                         *goal,
                         sweep_run.rows()};
  if (const Status ok = write_results(summary, command); !ok)
    return fail(ok.error(), ExitStatus::own_failure);
  const int signal = interrupts.poll();
  return signal != 0 ? interrupted_by(signal) : status_of(summary.rows);
}

ExitStatus run_sweep(const SweepCommand& command) {
  const Result<ExitStatus> status = run(command);
  return status ? *status : fail(status.error());
}

void add_outputs(CLI::App& command, SweepCommand& options) {
  command
      .add_option("--best", options.best,
                  "What is sought: step_time, samples_per_second\n(the default) or "
                  "samples_per_second_per_rank")
      ->type_name("WHAT")
      ->check(CLI::IsMember({"step_time", "samples_per_second", "samples_per_second_per_rank"}));
  command
      .add_option(
          "--memory-limit", options.memory_limit,
          "A rank may take so much memory, e.g. 80GB; what the\nmachine file says holds as well")
      ->type_name("SIZE");
  command
      .add_option("--output", options.outputs,
                  "Write the result as text, json, csv or html,\n"
                  "e.g. html=plans.html; the path \"-\" is standard output")
      ->type_name("KIND=PATH")
      ->allow_extra_args(false);
  command.add_flag("-q,--quiet", options.quiet, "Do not print the text");
}

}  // namespace

void add_sweep(CLI::App& app, ExitStatus& status) {
  CLI::App* command = app.add_subcommand("sweep", "Simulate many variants of a job, best first");
  const auto options = std::make_shared<SweepCommand>();
  options->workers = std::max(1U, std::thread::hardware_concurrency());
  command
      ->add_option(
          "SCENARIO", options->scenario,
          "Scenario file: the job that is varied; or a sweep\nfile, which says all of this")
      ->type_name("")
      ->required();
  command
      ->add_option("--machine", options->machines,
                   "What it would run on: machines/*.yaml; several are\nvaried, too")
      ->type_name("FILE")
      ->allow_extra_args(false);
  command
      ->add_option("--vary", options->varied,
                   "A key and its values: ranks=2..16*2; several keys:\nall combinations")
      ->type_name("KEY=VALUES")
      ->allow_extra_args(false);
  command
      ->add_option("-o,--output-dir", options->folder,
                   "Keep the results here, each as it comes; the same\n"
                   "command goes on with what is there")
      ->type_name("DIR")
      ->required();
  command
      ->add_option("--trials", options->trials,
                   "Try so many points, found by a search that is not\nexhaustive, where the grid "
                   "has more")
      ->type_name("N")
      ->check(CLI::Range(PointId{1}, kMostTrials));
  // CLI11 would take -1 for a large number.
  command->add_option("--seed", options->seed, "Of the search; default: 1")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{0}, INT64_MAX).description(""));
  command->add_option("--steps", options->steps, "So many steps, and not the scenario's")
      ->type_name("N")
      ->check(CLI::Range(1, 100000));
  command
      ->add_option("-j,--jobs", options->workers,
                   "Workers at a time; default: one for each processor")
      ->type_name("N")
      ->check(CLI::Range(1, 256));
  CLI::Option* meta =
      command->add_flag("--meta", options->meta,
                        "Derive on tensors that have no values; the default\nfor the published "
                        "models, and for more than 64 ranks");
  command->add_flag("--no-meta", options->no_meta, "Derive with the values, whatever they take")
      ->excludes(meta);
  add_outputs(*command, *options);
  command->footer(kFooter);
  command->callback([options, &status] { status = run_sweep(*options); });
}

}  // namespace lockstep
