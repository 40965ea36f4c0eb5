// lockstep simulate plan FILE: the training step of a transformer, or of a model of several towers,
// on a cluster.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cli/cmd_simulate.h"
#include "cli/input_files.h"
#include "cli/report_options.h"
#include "reports/forecasts/multimodal.h"
#include "reports/forecasts/plan.h"
#include "sim/sweep/plan_grid.h"

namespace lockstep::cli {
namespace {

struct PlanCommand {
  std::string file, calibration;
  std::vector<std::string> settings;
  SimulationOutput output;
};

constexpr const char* kPlanFooter = R"(Examples:
  How long does a step take, where does its time go, and does it fit?
    lockstep simulate plan llama3-70b
  The same with other values, and with a network twice as fast:
    lockstep simulate plan llama3-70b --set tensor=4 \
      --set pipeline.stages=8 --set calibration.network_speed=2
  On other machines, as a page:
    lockstep simulate plan llama3-70b --calibration dgx-a100 \
      --output html=plan.html
  On a torus of nodes, or a fat tree, rails or a dragonfly:
    lockstep simulate plan llama3-70b --set \
      "calibration.network={topology: torus, sides: [4, 4, 4]}"
  The best split (see lockstep sweep --help):
    lockstep sweep llama3-70b -o cuts --vary tensor=1..8*2
  A vision encoder before the model, its images drawn from a distribution:
    lockstep simulate plan vlm-75b

A plan of several towers says who waits for whom, what other arrangements give,
and whether ranks without images hang the job.

Exit status: 0 predicted; 1 ranks without images hang the job; 2 bad usage or
plan; 4 the tool failed.
All keys: docs/reference/plan.md. What is computed, from which sources, and how
accurate it is: docs/simulate-workloads.md, docs/simulate-multimodal.md,
docs/simulate-networks.md.)";

Result<std::vector<sim::Axis>> settings_of(const PlanCommand& command) {
  std::vector<sim::Axis> out;
  for (const std::string& text : command.settings) {
    if (const std::size_t equals = text.find('='); equals == 0 || equals == std::string::npos)
      return Error{fmt::format("--set: \"{}\" should be KEY=VALUE", printable(text)),
                   {},
                   "write the key and its value: tensor=4"};
    Result<sim::Axis> axis = sim::parse_axis(text);
    if (!axis) return with_option("--set", {axis.error().message, {}, "write KEY=VALUE: tensor=4"});
    // "tensor=1..8*2" is of `sweep`.
    if (axis->values.size() > 1)
      return Error{fmt::format("--set {} has {}, and a plan takes one", printable(axis->key),
                               plural(axis->values.size(), "value")),
                   {},
                   fmt::format("try all of them: lockstep sweep {} --vary {}",
                               printable(command.file), printable(text))};
    const bool twice = std::any_of(out.begin(), out.end(),
                                   [&](const sim::Axis& other) { return other.key == axis->key; });
    if (twice)
      return Error{
          fmt::format("--set {} is given twice", printable(axis->key)), {}, "give one value"};
    out.push_back(std::move(*axis));
  }
  return out;
}

nlohmann::ordered_json by_key(const std::vector<sim::Axis>& settings) {
  nlohmann::ordered_json out;
  for (const sim::Axis& axis : settings) out[axis.key] = axis.values.front();
  return out;
}

// A single plan is a sweep over nothing: `sweep` and this command read and check plans alike.
Result<sim::PlanGrid> plans_of(const PlanCommand& command, const std::vector<sim::Axis>& settings) {
  std::vector<std::string> calibrations;
  if (!command.calibration.empty()) calibrations.push_back(command.calibration);
  const Result<sim::PlanInputs> inputs = sim::load_plan(command.file, calibrations);
  if (!inputs) return inputs.error();
  return sim::PlanGrid::make(inputs->plan, inputs->calibrations, settings, inputs->manifest.text);
}

// A plan that hangs is an answer with a finding, as a trace that hangs is.
reports::ExitStatus write_plan(const PlanCommand& command, const reports::OutputContent& content,
                               bool hangs) {
  return write_simulation(content, command.output,
                          hangs ? reports::ExitStatus::findings : reports::ExitStatus::clean);
}

Result<reports::ExitStatus> simulate_towers(const PlanCommand& command, const sim::PlanGrid& plans,
                                            const nlohmann::ordered_json& settings) {
  Result<sim::MultimodalForecast> forecast = plans.towers(0);
  if (!forecast) return forecast.error();
  forecast->plan.llm.settings = settings;
  const Result<reports::MultimodalResult> result = reports::multimodal_result(std::move(*forecast));
  if (!result) return reports::fail(result.error(), reports::ExitStatus::own_failure);
  const auto content = [&](const std::string& kind, bool to_stdout) {
    if (kind == "json") return reports::multimodal_json(*result);
    if (kind == "csv") return reports::multimodal_csv(*result);
    if (kind == "html") return reports::multimodal_html(*result);
    return reports::multimodal_text(*result, reports::text_width(to_stdout));
  };
  return write_plan(command, content, result->forecast.divergence.has_value());
}

Result<reports::ExitStatus> simulate_plan(const PlanCommand& command) {
  if (const Status output = check_simulation_output(command.output); !output) return output.error();
  const Result<std::vector<sim::Axis>> settings = settings_of(command);
  if (!settings) return settings.error();
  // --set gives each key one value, so there is one plan: number 0.
  const Result<sim::PlanGrid> plans = plans_of(command, *settings);
  if (!plans) return plans.error();
  if (plans->multimodal()) return simulate_towers(command, *plans, by_key(*settings));
  Result<sim::PlanForecast> result = plans->forecast(0);
  if (!result) return result.error();
  result->plan.settings = by_key(*settings);
  const auto content = [&](const std::string& kind, bool to_stdout) {
    if (kind == "json") return reports::plan_json(*result);
    if (kind == "csv") return reports::plan_csv(*result);
    if (kind == "html") return reports::plan_html(*result);
    return reports::plan_text(*result, reports::text_width(to_stdout));
  };
  return write_plan(command, content, false);
}

reports::ExitStatus run_simulate_plan(PlanCommand command) {
  StandardInput input;
  if (const Status taken = input.take(command.file); !taken) return reports::fail(taken.error());
  Result<std::string> file = plan_or_own(command.file);
  if (!file) return reports::fail(file.error());
  command.file = std::move(*file);
  const Result<reports::ExitStatus> status = simulate_plan(command);
  return status ? *status : input.fail(status.error());
}

}  // namespace

void add_simulate_plan(CLI::App& simulate, reports::ExitStatus& status) {
  auto command = std::make_shared<PlanCommand>();
  command->output.forms = {"result", {"text", "json", "csv", "html"}};
  CLI::App* sub =
      simulate.add_subcommand("plan", "Predict time and memory of a model on a cluster");
  sub->footer(kPlanFooter);
  sub->add_option("FILE", command->file,
                  "The plan, as YAML; or the name of a\nshipped one: llama3-70b")
      ->required();
  sub->add_option("--calibration", command->calibration,
                  "The calibration to use instead of the plan's: a file,\nor the name of a "
                  "shipped calibration")
      ->type_name("NAME|FILE");
  sub->add_option("--set", command->settings,
                  "Set a key of the plan, or calibration.PARAMETER:\npipeline.stages=8")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  add_simulation_output(*sub, command->output);
  sub->callback([command, &status] { status = run_simulate_plan(*command); });
}

}  // namespace lockstep::cli
