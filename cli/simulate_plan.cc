// lockstep simulate plan FILE: the training step of a transformer on a cluster.
#include <memory>
#include <string>
#include <vector>

#include "base/text.h"
#include "cli/cmd_simulate.h"
#include "cli/report_options.h"
#include "cli/shipped.h"
#include "cli/standard_input.h"
#include "reports/forecasts/plan.h"
#include "sim/sweep/training_plans.h"

namespace lockstep::cli {
namespace {

struct PlanCommand {
  std::string file, calibration;
  std::vector<std::string> settings;
  SimulationOutput output;
};

constexpr const char* kPlanFooter = R"(Examples:
  How long does a step take, where does its time go, and does it fit?
    lockstep simulate plan sim/plans/llama3-70b.yaml
  The same with other values, and with a network twice as fast:
    lockstep simulate plan sim/plans/llama3-70b.yaml --set tensor=4 \
      --set pipeline.stages=8 --set calibration.network_bandwidth=9e10
  On other machines, as a page:
    lockstep simulate plan sim/plans/llama3-70b.yaml --calibration a100-selene \
      --output html=plan.html
  The best split: lockstep sweep sim/plans/llama3-70b.yaml, see its --help.

All keys: docs/reference/plan.md. What is computed, from which sources, and how
accurate it is: docs/simulate-workloads.md.)";

Result<std::vector<sim::Axis>> settings_of(const PlanCommand& command) {
  std::vector<sim::Axis> out;
  for (const std::string& text : command.settings) {
    Result<sim::Axis> axis = sim::parse_axis(text);
    if (!axis) return with_option("--set", axis.error());
    if (axis->values.size() > 1)
      return Error{"--set " + printable(axis->key) + " has " +
                       plural(axis->values.size(), "value") + ", and a plan takes one",
                   {},
                   "try all of them: lockstep sweep " + printable(command.file) + " --vary " +
                       printable(text)};
    out.push_back(std::move(*axis));
  }
  return out;
}

Result<sim::PlanForecast> forecast(const PlanCommand& command) {
  const Result<std::vector<sim::Axis>> settings = settings_of(command);
  if (!settings) return settings.error();
  std::vector<std::string> calibrations;
  if (!command.calibration.empty()) calibrations.push_back(command.calibration);
  const Result<sim::PlanInputs> inputs = sim::load_plan(command.file, calibrations);
  if (!inputs) return inputs.error();
  const Result<sim::TrainingPlans> plans =
      sim::TrainingPlans::make(inputs->plan, inputs->calibrations, *settings);
  if (!plans) return plans.error();
  return plans->forecast(0);
}

reports::ExitStatus simulate_plan(PlanCommand command) {
  StandardInput input;
  if (const Status taken = input.take(command.file); !taken) return reports::fail(taken.error());
  Result<std::string> file = shipped_or_own("plans", command.file);
  if (!file) return reports::fail(file.error());
  command.file = std::move(*file);
  if (const Status output = check_simulation_output(command.output); !output)
    return reports::fail(output.error());
  const Result<sim::PlanForecast> result = forecast(command);
  if (!result) return reports::fail(result.error());
  const auto content = [&](const std::string& kind, bool) {
    if (kind == "json") return reports::plan_json(*result);
    if (kind == "csv") return reports::plan_csv(*result);
    return kind == "html" ? reports::plan_html(*result) : reports::plan_text(*result);
  };
  const Status written = write_simulation(content, command.output);
  return written ? reports::ExitStatus::clean
                 : reports::fail(written.error(), reports::ExitStatus::own_failure);
}

}  // namespace

void add_simulate_plan(CLI::App& simulate, reports::ExitStatus& status) {
  auto command = std::make_shared<PlanCommand>();
  command->output.forms = {"result", {"text", "json", "csv", "html"}};
  CLI::App* sub = simulate.add_subcommand("plan", "A transformer on a cluster: time and memory");
  sub->footer(kPlanFooter);
  sub->add_option("FILE", command->file, "The plan, as YAML; or a name of sim/plans:\nllama3-70b")
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
  sub->callback([command, &status] { status = simulate_plan(*command); });
}

}  // namespace lockstep::cli
