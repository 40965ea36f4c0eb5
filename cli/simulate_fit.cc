// lockstep simulate fit FILE: a calibration from a few rows of a table of measurements.
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "base/files/write_file.h"
#include "base/text.h"
#include "cli/cmd_simulate.h"
#include "cli/output.h"
#include "cli/simulate_table.h"
#include "sim/transformer/fit.h"

namespace lockstep {
namespace {

struct FitCommand {
  std::string file, start, name, result;
  std::vector<std::size_t> rows;
  sim::FitOptions options;
};

constexpr const char* kFitFooter = R"(Examples:
  The calibration of the shipped A100 cluster, as it was made:
    lockstep simulate fit vtrain_measured_multi.json --rows 8,28,34 \
      --start a100-cluster --parameters gemm_efficiency,memory_bandwidth \
      --name mine --result mine.yaml

Parameters that the rows say little about stay near where they start:
--stiffness says how near. What each is: docs/simulate-workloads.md.)";

Result<std::vector<sim::MeasuredStep>> chosen_rows(const FitCommand& command,
                                                   const sim::MeasuredTable& table) {
  if (table.steps.empty())
    return Error{command.file + " has no training steps to fit to", {}, "give a table of steps"};
  std::vector<sim::MeasuredStep> rows;
  for (const std::size_t row : command.rows) {
    if (row < 1 || row > table.steps.size())
      return Error{"--rows: there is no row " + std::to_string(row),
                   {},
                   "the table has rows 1 to " + std::to_string(table.steps.size())};
    rows.push_back(table.steps[row - 1]);
  }
  return rows;
}

ExitStatus simulate_fit(const FitCommand& command) {
  const Result<sim::MeasuredTable> table = load_measured_table(command.file);
  if (!table) return fail(table.error());
  const Result<std::vector<sim::MeasuredStep>> rows = chosen_rows(command, *table);
  if (!rows) return fail(rows.error());
  const Result<sim::Calibration> start = load_calibration(command.start, table->machine_type);
  if (!start) return fail(start.error());
  const Result<sim::Fit> fit = sim::fit_parameters(*rows, start->cost, command.options);
  if (!fit) return fail(fit.error());
  sim::Calibration calibration;
  calibration.name = command.name;
  calibration.cost = fit->cost;
  for (const sim::MeasuredStep& row : *rows) calibration.fitted_on.push_back(row.label);
  if (const Status written = write_file(command.result, sim::calibration_yaml(calibration));
      !written)
    return fail(written.error(), ExitStatus::own_failure);
  std::cout << "fitted " << plural(command.options.parameters.size(), "parameter") << " to "
            << plural(rows->size(), "row") << " of " << table->steps.size() << ": mean error "
            << fixed(100 * fit->before, 2) << " % before, " << fixed(100 * fit->after, 2)
            << " % after\n"
            << "written to " << printable(command.result) << "\n";
  return ExitStatus::clean;
}

}  // namespace

void add_simulate_fit(CLI::App& simulate, ExitStatus& status) {
  auto command = std::make_shared<FitCommand>();
  CLI::App* sub = simulate.add_subcommand("fit", "Calibrate a machine type on measured rows");
  sub->footer(kFitFooter);
  sub->add_option("FILE", command->file, "A table of training steps, as JSON")->required();
  sub->add_option("--rows", command->rows, "Rows of the table to fit to, from 1")
      ->delimiter(',')
      ->type_name("N[,N..]")
      ->required();
  sub->add_option("--parameters", command->options.parameters, "What may change")
      ->delimiter(',')
      ->type_name("NAME[,NAME..]")
      ->required();
  sub->add_option("--start", command->start,
                  "The calibration to start from; left out: that of\nthe table's machines")
      ->type_name("NAME|FILE");
  sub->add_option("--stiffness", command->options.stiffness,
                  "How strongly parameters are held where they start;\nleft out: 0.1")
      ->check(CLI::Range(1e-6, 1e3));
  sub->add_option("--name", command->name, "The new calibration's name")->required();
  sub->add_option("--result", command->result, "The file to write, as YAML")
      ->type_name("FILE")
      ->required();
  sub->callback([command, &status] { status = simulate_fit(*command); });
}

}  // namespace lockstep
