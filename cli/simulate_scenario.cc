// lockstep simulate SCENARIO: how long the steps of a job would take on a machine that a file
// describes. The calls are derived, not modelled: docs/simulate-scenarios.md.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/documents/file_kind.h"
#include "base/documents/yaml_document.h"
#include "base/ends_at_once.h"
#include "base/files/read_file.h"
#include "base/files/write_file.h"
#include "base/interrupts.h"
#include "base/text.h"
#include "cli/cmd_simulate.h"
#include "cli/input_files.h"
#include "cli/report_options.h"
#include "reports/exit_status.h"
#include "reports/forecasts/memory.h"
#include "reports/forecasts/scenario.h"
#include "reports/forecasts/simulated_job.h"
#include "runtime/forecast/derived_ranks.h"
#include "runtime/forecast/scenario.h"
#include "runtime/job/scenario.h"
#include "sim/engine/to_run.h"
#include "sim/forecast/scenario.h"
#include "sim/forecast/timed_run.h"
#include "sim/forecast/trials.h"
#include "sim/machine/simulated_job.h"
#include "trace/load.h"
#include "trace/spread.h"
#include "verify/verify.h"

namespace lockstep::cli {
namespace {

struct SimulateScenarioCommand {
  std::string path, machine, output_dir, traces;
  int ranks = 0;  // 0: the scenario's
  int steps = 0;
  bool meta = false, no_meta = false, time_work = false;
  TrialsCommand trials;
  SimulationOutput output;
};

// The forecast of a job that reaches its end, and what is wrong with its calls.
reports::ExitStatus write_forecast(sim::TimedScenario timed, const SimulationOutput& output) {
  const sim::ScenarioForecast& forecast = *timed.forecast;
  reports::JudgedRun judged{std::move(timed.run), {}};
  // The calls alone decide. Their times take several times the memory, and would change nothing.
  judged.report = verify::verify(judged.run);
  const reports::JudgedRun* const wrong = judged.report.findings.empty() ? nullptr : &judged;
  std::string timeline;
  const auto content = [&](const std::string& kind, bool to_stdout) {
    if (kind == "json") return fmt::format("{}\n", reports::forecast_json(forecast, wrong).dump(2));
    if (kind == "csv") return reports::forecast_csv(forecast);
    if (kind == "html") return reports::forecast_page(forecast, wrong);
    if (kind != "timeline")
      return reports::forecast_text(forecast, reports::text_width(to_stdout), wrong);
    // Made once for all targets.
    if (timeline.empty()) {
      judged.run = sim::as_simulated(std::move(judged.run), timed.simulated.program,
                                     timed.simulated.folding, timed.simulated.result);
      timeline = reports::simulated_timeline(judged.report, judged.run,
                                             reports::memory_counters(forecast.memory));
    }
    return timeline;
  };
  return write_simulation(
      content, output,
      wrong == nullptr ? reports::ExitStatus::clean : reports::exit_status(judged.report, "error"));
}

Status keep_traces(const SimulateScenarioCommand& command, const sim::SimulatedProgram& simulated,
                   const trace::Run& run) {
  return command.traces.empty() ? Status::ok()
                                : sim::write_simulated_traces(simulated, run, command.traces);
}

// The job that was derived into `folder`, if one of its ranks raised an exception. Empty: none did,
// or the job was not derived to its end. A derived rank may stand for many.
std::optional<sim::RaisedJob> raised_job(const std::string& folder) {
  const Result<runtime::Scenario> scenario = runtime::load_scenario(folder + "/scenario.yaml");
  if (!scenario) return std::nullopt;
  std::optional<runtime::DrawnAlike> drawn;
  if (runtime::needs_draws(*scenario)) {
    Result<runtime::DrawnAlike> known = runtime::known_to_draw_alike(*scenario, folder);
    if (!known) return std::nullopt;
    drawn = std::move(*known);
  }
  const Result<std::vector<std::int32_t>> traced = runtime::ranks_that_stand_for(*scenario, drawn);
  if (!traced) return std::nullopt;
  Result<trace::Run> run = trace::load_run({folder});
  if (!run) return std::nullopt;
  Result<trace::Run> all = trace::spread(std::move(*run), *traced, scenario->ranks_of_copy());
  if (!all) return std::nullopt;
  return sim::raised_job(std::move(*all));
}

// Derives the job's calls into `folder`, times them on the machine, and reports. --ranks and
// --steps change the job before it is derived.
Result<reports::ExitStatus> simulate(const SimulateScenarioCommand& command,
                                     const sim::Machine& machine, const sim::TrialOptions& trials,
                                     const std::string& folder, Interrupts& interrupts) {
  runtime::ForecastOptions options{folder, std::nullopt, command.time_work, command.output.quiet};
  // Tensors without values cannot be timed. Without an option, the job's size decides.
  if (command.time_work) options.on_meta = false;
  if (command.meta || command.no_meta) options.on_meta = command.meta;
  // A large job is simulated for many seconds, and again for each what-if; one that hangs is
  // judged.
  std::optional<EndsAtOnce> ends;
  options.computes = [&] {
    if (ends) return;
    ends.emplace([kept = !command.output_dir.empty(), folder] {
      std::error_code ignored;
      if (!kept) std::filesystem::remove_all(folder, ignored);
    });
  };
  runtime::SimulatedChange change;
  if (command.ranks > 0) change.ranks = command.ranks;
  if (command.steps > 0) change.steps = command.steps;
  Result<sim::TimedScenario> timed =
      runtime::forecast_scenario(command.path, change, machine, options, interrupts);
  if (!timed) {
    if (interrupts.poll() != 0) return timed.error();
    options.computes();
    // A program that raises an exception is an answer about the job, not an error of the forecast.
    std::optional<sim::RaisedJob> raised = raised_job(folder);
    if (!raised) return timed.error();
    if (const Status kept = keep_traces(command, raised->simulated, raised->run); !kept)
      return kept.error();
    const Result<runtime::Scenario> scenario = runtime::load_scenario(command.path);
    return write_failure(reports::simulated_raise(scenario ? scenario->name : to_utf8(command.path),
                                                  std::move(*raised)),
                         command.output);
  }
  if (const Status kept = keep_traces(command, timed->simulated, timed->run); !kept)
    return kept.error();
  if (!timed->forecast) {
    nlohmann::ordered_json json = {{"scenario", timed->scenario}, {"stuck", true}};
    return write_failure(
        reports::simulated_hang(timed->simulated, std::move(timed->run), std::move(json)),
        command.output);
  }
  sim::ScenarioForecast& forecast = *timed->forecast;
  // What-ifs and trials simulate the derived calls again with other times, which is cheap compared
  // with the derivation.
  Result<std::vector<sim::WhatIf>> changed = sim::what_ifs(*timed, machine);
  if (!changed) return changed.error();
  forecast.what_ifs = std::move(*changed);
  if (trials.trials > 0) {
    const Result<sim::TrialsForecast> tried = sim::run_trials(*timed, machine, trials);
    if (!tried) return tried.error();
    forecast.trials = *tried;
  }
  return write_forecast(std::move(*timed), command.output);
}

Result<reports::ExitStatus> checked_and_simulated(const SimulateScenarioCommand& command) {
  const std::vector<std::string> made = {command.output_dir, command.traces};
  if (const Status outputs = check_simulation_output(command.output, made); !outputs)
    return outputs.error();
  if (command.path.empty())
    return Error{"nothing to simulate is named", {}, "`lockstep simulate --help` shows how"};
  std::error_code unknown;
  // CLI11 takes "colective" for the scenario's file.
  const std::vector<std::string> commands = {"collective", "trace", "pipeline", "plan"};
  if (const std::string meant = nearest(command.path, commands);
      !meant.empty() && !std::filesystem::exists(command.path, unknown))
    return Error{fmt::format("no file or command \"{}\"", printable(command.path)),
                 {},
                 fmt::format("did you mean `lockstep simulate {}`?", meant)};
  if (const std::vector<std::string> plans = shipped_names("plans");
      std::find(plans.begin(), plans.end(), command.path) != plans.end() &&
      !std::filesystem::exists(command.path, unknown))
    return Error{fmt::format("{} is a plan, not a scenario", command.path),
                 {},
                 fmt::format("lockstep simulate plan {}", command.path)};
  // Before a machine is asked for: a plan has one, and a file that is not there needs none.
  const Result<std::string> text = read_input(command.path);
  if (!text) return text.error();
  const Result<YamlDocument> document = parse_yaml(*text, command.path);
  if (!document) return document.error();
  if (auto other = other_kind(*document, "lockstep")) return *other;
  if (const Status folder = check_traces_folder(command.traces); !folder) return folder.error();
  if (command.machine.empty())
    return Error{"no machine is named", {}, "add --machine dgx-h100, or your own"};
  const Result<sim::TrialOptions> trials = trial_options(command.trials);
  if (!trials) return trials.error();
  const Result<sim::Machine> machine = sim::load_machine(command.machine);
  if (!machine) return machine.error();
  if (command.time_work && !machine->cores)
    return Error{fmt::format("{} has devices, and --time-work times this processor",
                             printable(command.machine)),
                 {},
                 "leave it out, or give what `lockstep calibrate` wrote here"};
  const WorkFolder folder(command.output_dir, "lockstep-simulate-");
  if (!folder.usable())
    return Error{"this folder cannot be made, or is not empty", {folder.path()}, "name a new one"};
  Interrupts interrupts;
  Result<reports::ExitStatus> status =
      simulate(command, *machine, *trials, folder.path(), interrupts);
  if (const int signal = interrupts.poll(); signal != 0) return reports::interrupted_by(signal);
  if (!status) return folder.for_user(status.error(), command.path);
  return status;
}

reports::ExitStatus simulate_scenario(SimulateScenarioCommand command) {
  StandardInput input;
  if (const Status taken = input.take(command.path); !taken) return reports::fail(taken.error());
  const Result<reports::ExitStatus> status = checked_and_simulated(command);
  return status ? *status : input.fail(status.error());
}

}  // namespace

void add_simulate_scenario(CLI::App& simulate, reports::ExitStatus& status) {
  const auto options = std::make_shared<SimulateScenarioCommand>();
  simulate.add_option("SCENARIO", options->path, "Scenario file whose steps are predicted")
      ->type_name("");
  simulate
      .add_option("--machine", options->machine,
                  "The machine: a file, or the name of a\nshipped one: dgx-h100")
      ->type_name("NAME|FILE");
  simulate.add_option("--ranks", options->ranks, "Number of ranks; default: the scenario's")
      ->type_name("N")
      ->check(CLI::Range(1, 65536));
  simulate.add_option("--steps", options->steps, "Number of steps; default: the scenario's")
      ->type_name("N")
      ->check(CLI::Range(1, 100000));
  CLI::Option* meta = add_meta_options(simulate, options->meta, options->no_meta);
  simulate
      .add_flag("--time-work", options->time_work,
                "Time each rank's work here, one rank after the other;\n"
                "--machine must describe this machine")
      ->excludes(meta);
  simulate
      .add_option("--output-dir", options->output_dir,
                  "Keep the derived calls and costs here (new folder)")
      ->type_name("DIR");
  add_trials(simulate, options->trials);
  options->output.forms.kinds = {"text", "json", "csv", "html", "timeline"};
  simulate
      .add_option("--traces", options->traces,
                  "Write the simulated run here (new folder), as traces\nthat other commands read")
      ->type_name("DIR");
  add_simulation_output(simulate, options->output);
  simulate.callback([options, &simulate, &status] {
    // CLI11 calls this for `simulate collective`, too.
    if (simulate.get_subcommands().empty()) status = simulate_scenario(*options);
  });
}

}  // namespace lockstep::cli
