#include "cli/sweep_inputs.h"

#include <filesystem>
#include <utility>

#include "base/files/read_input.h"
#include "base/sha256.h"
#include "base/text.h"
#include "base/tool_version.h"
#include "cli/cmd_simulate.h"
#include "runtime/launch/scenario_files.h"
#include "sim/sweep/plan_inputs.h"
#include "sim/sweep/sweep_file.h"

namespace lockstep {
namespace {

Result<std::vector<sweep::Axis>> axes_of(const SweepCommand& command) {
  std::vector<sweep::Axis> axes = command.axes;
  for (const std::string& text : command.varied) {
    Result<sweep::Axis> axis = sweep::parse_axis(text);
    if (!axis) return with_option("--vary", axis.error());
    axes.push_back(std::move(*axis));
  }
  return axes;
}

Result<SweepInputs> load_scenarios(const SweepCommand& command,
                                   const std::vector<sweep::Axis>& axes) {
  if (!command.calibrations.empty())
    return Error{"--calibration is of plans, and " + printable(command.job) + " is a scenario",
                 {},
                 "name what it runs on with --machine"};
  if (command.machines.empty())
    return Error{
        "no machine is named", {}, "add --machine sim/machines/dgx-h100.yaml, or your own"};
  // What is wrong with the scenario as it stands is said as by every command.
  const Result<Scenario> own = load_checked_scenario(command.job);
  if (!own) return own.error();
  const Result<std::string> scenario = read_input(own->file);
  if (!scenario) return scenario.error();
  SweepIdentity identity{
      std::string(tool_version()), sha256(*scenario), {}, command.asked_steps(), command.on_meta()};
  std::vector<sweep::SourceFile> machines;
  for (const std::string& file : command.machines) {
    Result<std::string> text = read_input(file);
    if (!text) return text.error();
    const std::string name = to_utf8(file);  // it is kept as JSON
    if (!identity.machines.emplace(name, sha256(*text)).second)
      return Error{"--machine " + printable(file) + " is given twice", {}, "name it once"};
    machines.push_back({name, std::move(*text)});
  }
  Result<sweep::Plan> plan =
      sweep::Plan::make({own->file, *scenario}, machines, axes, command.asked_steps());
  if (!plan) return plan.error();
  return SweepInputs{std::move(*plan), std::move(identity)};
}

Result<SweepInputs> load_plans(const SweepCommand& command, const std::vector<sweep::Axis>& axes) {
  const auto of_scenarios = [&](const char* option, const char* fix) {
    return Error{
        std::string(option) + " is of scenarios, and " + printable(command.job) + " is a plan",
        {},
        fix};
  };
  if (!command.machines.empty())
    return of_scenarios("--machine", "name what it runs on with --calibration");
  if (command.steps > 0) return of_scenarios("--steps", "a plan speaks of one step: leave it out");
  if (command.on_meta()) return of_scenarios(command.meta ? "--meta" : "--no-meta", "leave it out");
  if (command.workers > 0) return of_scenarios("--jobs", "plans need no workers: leave it out");
  const Result<PlanInputs> inputs = load_plan(command.job, command.calibrations);
  if (!inputs) return inputs.error();
  SweepIdentity identity{std::string(tool_version()), sha256(inputs->plan.text), {}, {}, {}};
  for (const sweep::SourceFile& calibration : inputs->calibrations)
    identity.machines.emplace(calibration.file, sha256(calibration.text));
  Result<sweep::TrainingPlans> plans =
      sweep::TrainingPlans::make(inputs->plan, inputs->calibrations, axes);
  if (!plans) return plans.error();
  return SweepInputs{std::move(*plans), std::move(identity)};
}

}  // namespace

Result<SweepCommand> with_sweep_file(SweepCommand command) {
  const std::string file = command.job;
  const Result<std::string> text = read_input(file);
  if (!text) return command;  // it is said of the scenario
  Result<std::optional<sweep::SweepFile>> read = sweep::parse_sweep_file(*text, file);
  if (!read) return read.error();
  if (!*read) return command;
  sweep::SweepFile& said = **read;
  // Its paths are as seen from where it lies.
  const auto path = [&](const std::string& name) {
    return (std::filesystem::path(file).parent_path() / name).lexically_normal().string();
  };
  command.job = path(said.plan.empty() ? said.scenario : said.plan);
  if (command.machines.empty())
    for (const std::string& machine : said.machines) command.machines.push_back(path(machine));
  if (command.calibrations.empty())
    for (const std::string& name : said.calibrations)
      command.calibrations.push_back(calibration_seen_from(file, name));
  command.axes = std::move(said.axes);
  if (command.best.empty()) command.best = said.best.value_or("");
  if (command.memory_limit.empty()) command.memory_limit = said.memory_limit.value_or("");
  if (command.trials == 0) command.trials = static_cast<sweep::PointId>(said.trials.value_or(0));
  if (!command.seed && said.seed) command.seed = static_cast<std::uint64_t>(*said.seed);
  if (command.steps == 0) command.steps = static_cast<int>(said.steps.value_or(0));
  return command;
}

Result<SweepInputs> load_sweep(const SweepCommand& command) {
  const Result<std::vector<sweep::Axis>> axes = axes_of(command);
  if (!axes) return axes.error();
  const Result<std::string> text = read_input(command.job);
  const bool of_plan = text && sim::is_plan(*text);
  return of_plan ? load_plans(command, *axes) : load_scenarios(command, *axes);
}

}  // namespace lockstep
