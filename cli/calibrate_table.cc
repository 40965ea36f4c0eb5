// lockstep calibrate check FILE: every row of a table of measurements, beside its prediction; and
// lockstep calibrate fit FILE: a calibration from a few of them.
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "base/files/write_file.h"
#include "base/quantities.h"
#include "base/result.h"
#include "base/text.h"
#include "cli/cmd_simulate.h"
#include "cli/report_options.h"
#include "reports/forecasts/measured_table.h"
#include "sim/machine/machine.h"
#include "sim/transformer/calibration.h"
#include "sim/transformer/evaluation.h"
#include "sim/transformer/fit.h"
#include "sim/transformer/measured_table.h"

namespace lockstep::cli {
namespace {

struct TableCommand {
  std::string file, calibration, machine, only;
  SimulationOutput output;
};

constexpr const char* kTableFooter = R"(Examples:
  How far off is the model on measured training steps?
    lockstep calibrate check vtrain_measured_multi.json
  The same with a calibration of your own:
    lockstep calibrate fit mine.json --rows 1,7 --parameters gemm_efficiency \
      --start a100-cluster --result mine.yaml
    lockstep calibrate check mine.json --calibration mine.yaml
  What a machine file predicts for all-reduces that were measured on H100:
    lockstep calibrate check nccl_allreduce_h100_a100.json --only h100 \
      --machine dgx-h100

docs/simulate-workloads.md explains the tables, the model and its sources.)";

// Leaves the rows whose labels begin with `only`.
void keep_only(sim::TableAnswer& answer, const std::string& only) {
  std::erase_if(answer.rows,
                [&](const sim::ComparedRow& row) { return !row.label.starts_with(only); });
}

Result<sim::TableAnswer> predict(const TableCommand& command, const sim::MeasuredTable& table) {
  if (table.collectives.empty()) {
    const Result<sim::Calibration> calibration =
        sim::load_calibration(command.calibration, table.machine_type);
    if (!calibration) return calibration.error();
    return sim::predict_steps(table, *calibration);
  }
  if (command.machine.empty()) return sim::predict_collectives(table);
  const Result<sim::Machine> machine = sim::load_machine(command.machine);
  if (!machine) return machine.error();
  return sim::predict_on_machine(table, *machine, command.machine);
}

reports::ExitStatus check_table(const TableCommand& command) {
  if (const Status output = check_simulation_output(command.output); !output)
    return reports::fail(output.error());
  const Result<sim::MeasuredTable> table = sim::load_measured_table(command.file);
  if (!table) return reports::fail(table.error());
  if (table->collectives.empty() && !command.machine.empty())
    return reports::fail({"--machine prices collectives, and the table has training steps",
                          {command.file},
                          "leave it out, or give a table of nccl-tests"});
  Result<sim::TableAnswer> answer = predict(command, *table);
  if (!answer) return reports::fail(answer.error());
  keep_only(*answer, command.only);
  if (answer->rows.empty())
    return reports::fail({fmt::format("no row starts with \"{}\"", printable(command.only)),
                          {command.file},
                          "give --only the beginning of a label that the whole table shows"});
  return write_simulation(reports::table_answer_text(*answer), reports::table_answer_json(*answer),
                          command.output);
}

}  // namespace

void add_calibrate_check(CLI::App& calibrate, reports::ExitStatus& status) {
  auto command = std::make_shared<TableCommand>();
  CLI::App* sub =
      calibrate.add_subcommand("check", "Compare predictions with a table of measurements");
  sub->footer(kTableFooter);
  sub->add_option("FILE", command->file, "The table, as JSON")->required();
  sub->add_option("--calibration", command->calibration,
                  "A file, or the name of a shipped calibration;\ndefault: that of the table's "
                  "machines")
      ->type_name("NAME|FILE");
  sub->add_option(
         "--machine", command->machine,
         "For tables of nccl-tests: a machine file, or the name\nof a shipped one; default: "
         "the one that was measured")
      ->type_name("NAME|FILE");
  sub->add_option("--only", command->only, "Only rows whose label starts with this")
      ->type_name("TEXT");
  add_simulation_output(*sub, command->output);
  sub->callback([command, &status] { status = check_table(*command); });
}

namespace {

struct FitCommand {
  std::string file, start, name, result;
  std::vector<std::size_t> rows;
  sim::FitOptions options;
};

constexpr const char* kFitFooter = R"(Examples:
  How the calibration of the shipped A100 cluster was made:
    lockstep calibrate fit vtrain_measured_multi.json --rows 8,28,34 \
      --start a100-cluster --parameters gemm_efficiency,memory_bandwidth \
      --name mine --result mine.yaml

Parameters about which the rows say little stay near their start; --stiffness
says how near. docs/simulate-workloads.md describes them.)";

Result<std::vector<sim::MeasuredStep>> chosen_rows(const FitCommand& command,
                                                   const sim::MeasuredTable& table) {
  if (table.steps.empty())
    return Error{command.file + " has no training steps to fit to", {}, "give a table of steps"};
  std::vector<sim::MeasuredStep> rows;
  for (const std::size_t row : command.rows) {
    if (row < 1 || row > table.steps.size())
      return Error{fmt::format("--rows: there is no row {}", row),
                   {},
                   fmt::format("the table has rows 1 to {}", table.steps.size())};
    rows.push_back(table.steps[row - 1]);
  }
  return rows;
}

reports::ExitStatus fit_rows(const FitCommand& command) {
  const Result<sim::MeasuredTable> table = sim::load_measured_table(command.file);
  if (!table) return reports::fail(table.error());
  const Result<std::vector<sim::MeasuredStep>> rows = chosen_rows(command, *table);
  if (!rows) return reports::fail(rows.error());
  const Result<sim::Calibration> start = sim::load_calibration(command.start, table->machine_type);
  if (!start) return reports::fail(start.error());
  const Result<sim::Fit> fit = sim::fit_parameters(*rows, start->cost, command.options);
  if (!fit) return reports::fail(fit.error());
  sim::Calibration calibration = *start;
  calibration.name = command.name;
  calibration.fitted_on.clear();
  calibration.cost = fit->cost;
  for (const sim::MeasuredStep& row : *rows) calibration.fitted_on.push_back(row.label);
  const Result<sim::TableAnswer> all = sim::predict_steps(*table, calibration);
  if (!all) return reports::fail(all.error());
  // Too few rows leave what the start says.
  if (const auto spread = sim::spread_of(*all))
    calibration.cost.spread = std::clamp(*spread, 0.001, 1.0);
  if (const Status written = write_file(command.result, sim::calibration_yaml(calibration));
      !written)
    return reports::fail(written.error(), reports::ExitStatus::own_failure);
  std::cout << fmt::format("fitted {} to {} of {}: mean error {} before, {} after\nwritten to {}\n",
                           plural(command.options.parameters.size(), "parameter"),
                           plural(rows->size(), "row"), table->steps.size(), percent(fit->before),
                           percent(fit->after), printable(command.result));
  return reports::ExitStatus::clean;
}

}  // namespace

void add_calibrate_fit(CLI::App& calibrate, reports::ExitStatus& status) {
  auto command = std::make_shared<FitCommand>();
  CLI::App* sub = calibrate.add_subcommand("fit", "Fit a machine type to rows of a table");
  sub->footer(kFitFooter);
  sub->add_option("FILE", command->file, "A table of training steps, as JSON")->required();
  sub->add_option("--rows", command->rows, "Rows of the table to fit to, from 1")
      ->delimiter(',')
      ->type_name("N[,N..]")
      ->required();
  sub->add_option("--parameters", command->options.parameters, "Parameters to fit")
      ->delimiter(',')
      ->type_name("NAME[,NAME..]")
      ->required();
  sub->add_option("--start", command->start,
                  "The calibration to start from; default: that of\nthe table's machines")
      ->type_name("NAME|FILE");
  sub->add_option("--stiffness", command->options.stiffness,
                  "How strongly parameters are held at their start;\ndefault: 0.1")
      ->check(CLI::Range(1e-6, 1e3));
  sub->add_option("--name", command->name, "The new calibration's name")->required();
  sub->add_option("--result", command->result, "The file to write, as YAML")
      ->type_name("FILE")
      ->required();
  sub->callback([command, &status] { status = fit_rows(*command); });
}

}  // namespace lockstep::cli
