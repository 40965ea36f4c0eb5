// What `simulate table` and `simulate fit` share: reading a table, and choosing a calibration.

#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/files/read_file.h"
#include "base/files/write_file.h"
#include "base/result.h"
#include "base/tables.h"
#include "base/text.h"
#include "cli/cmd_simulate.h"
#include "cli/report_options.h"
#include "sim/collectives/nccl_curves.h"
#include "sim/machine/work_time.h"
#include "sim/transformer/calibration.h"
#include "sim/transformer/evaluation.h"
#include "sim/transformer/fit.h"
#include "sim/transformer/measured_table.h"

namespace lockstep {

// Reads and parses the table at `path`, of at most 256 MiB.
Result<sim::MeasuredTable> load_measured_table(const std::string& path);

// `given` is a file, the name of a shipped calibration, or empty: then that of `machine_type`.
Result<sim::Calibration> load_calibration(const std::string& given,
                                          const std::string& machine_type);

// lockstep simulate table FILE: every row of a table of measurements, predicted.

namespace {

using sim::Comparison;

struct TableCommand {
  std::string file, calibration, curves, machine, only;
  SimulationOutput output;
};

constexpr const char* kTableFooter = R"(Examples:
  How far off is the model on measured training steps?
    lockstep simulate table vtrain_measured_multi.json
  The same with a calibration of your own:
    lockstep simulate fit mine.json --rows 1,7 --parameters gemm_efficiency \
      --start a100-cluster --result mine.yaml
    lockstep simulate table mine.json --calibration mine.yaml
  What a machine file makes of the all-reduces measured on H100:
    lockstep simulate table nccl_allreduce_h100_a100.json --only h100 \
      --machine sim/machines/dgx-h100.yaml

The forms of tables, the model and its sources: docs/simulate-workloads.md.)";

struct ComparedRow {
  std::string label;
  Comparison figure;
  bool fitted = false;  // the calibration was made with it
};

struct TableAnswer {
  std::string file, calibration;
  std::vector<ComparedRow> rows;
};

bool contains(const std::vector<std::string>& list, const std::string& what) {
  return std::find(list.begin(), list.end(), what) != list.end();
}

std::string_view kind_name(Comparison::Kind kind) {
  switch (kind) {
    case Comparison::Kind::seconds:
      return "time";
    case Comparison::Kind::tokens:
      return "tokens/s";
    case Comparison::Kind::memory:
      return "memory";
  }
  return "";
}

std::string figure_words(Comparison::Kind kind, double value) {
  if (kind == Comparison::Kind::memory) return fixed(value / (1024.0 * 1024 * 1024), 1) + " GiB";
  if (kind == Comparison::Kind::tokens) return fixed(value, value < 1000 ? 1 : 0) + " tok/s";
  if (value < 1e-3) return fixed(value * 1e6, 2) + " us";
  return value < 1 ? fixed(value * 1e3, 2) + " ms" : fixed(value, 2) + " s";
}

std::vector<Comparison> figures_of(const TableAnswer& answer, Comparison::Kind kind,
                                   bool held_out) {
  std::vector<Comparison> out;
  for (const ComparedRow& row : answer.rows)
    if (row.figure.kind == kind && (!held_out || !row.fitted)) out.push_back(row.figure);
  return out;
}

std::string summary_line(const std::string& name, const sim::ErrorSummary& summary) {
  return pad_right(name, 26) + plural(summary.count, "figure") + ": mean " +
         fixed(100 * summary.mean, 2) + " %, median " + fixed(100 * summary.median, 2) +
         " %, largest " + fixed(100 * summary.largest, 1) + " %\n";
}

std::string table_answer_text(const TableAnswer& answer) {
  std::string out = "calibration: " + printable(answer.calibration) + "\n\n";
  out += "  row    measured   predicted    error  \n";
  for (const ComparedRow& row : answer.rows) {
    const std::string error =
        (row.figure.error() < 0 ? "" : "+") + fixed(100 * row.figure.error(), 1) + " %";
    const auto right = [](const std::string& text, std::size_t width) {
      return std::string(width > text.size() ? width - text.size() : 0, ' ') + text;
    };
    out += right(std::to_string(row.figure.row), 5) + (row.fitted ? "*" : " ") +
           right(figure_words(row.figure.kind, row.figure.measured), 11) +
           right(figure_words(row.figure.kind, row.figure.predicted), 12) + right(error, 9) + "  " +
           shorten_middle(printable(row.label), 39) + "\n";
  }
  out += "\n";
  bool marked = false;
  for (const Comparison::Kind kind :
       {Comparison::Kind::seconds, Comparison::Kind::tokens, Comparison::Kind::memory}) {
    const auto all = figures_of(answer, kind, false);
    const auto held_out = figures_of(answer, kind, true);
    if (all.empty()) continue;
    out += summary_line("error of " + std::string(kind_name(kind)), sim::summarize(all));
    if (held_out.size() == all.size()) continue;
    marked = true;
    if (!held_out.empty())
      out += summary_line("  without rows fitted to", sim::summarize(held_out));
  }
  if (marked) out += "* the calibration was fitted to this row\n";
  return out;
}

nlohmann::ordered_json summary_json(const sim::ErrorSummary& summary) {
  return {{"count", summary.count},
          {"mape", summary.mean},
          {"median", summary.median},
          {"max", summary.largest}};
}

std::string table_answer_json(const TableAnswer& answer) {
  nlohmann::ordered_json out;
  out["file"] = printable(answer.file);
  out["calibration"] = printable(answer.calibration);
  out["rows"] = nlohmann::ordered_json::array();
  for (const ComparedRow& row : answer.rows)
    out["rows"].push_back({{"row", row.figure.row},
                           {"label", printable(row.label)},
                           {"kind", kind_name(row.figure.kind)},
                           {"measured", row.figure.measured},
                           {"predicted", row.figure.predicted},
                           {"error", row.figure.error()},
                           {"fitted", row.fitted}});
  out["summary"] = nlohmann::ordered_json::object();
  out["held_out"] = nlohmann::ordered_json::object();
  for (const Comparison::Kind kind :
       {Comparison::Kind::seconds, Comparison::Kind::tokens, Comparison::Kind::memory}) {
    const auto all = figures_of(answer, kind, false);
    if (all.empty()) continue;
    out["summary"][std::string(kind_name(kind))] = summary_json(sim::summarize(all));
    out["held_out"][std::string(kind_name(kind))] =
        summary_json(sim::summarize(figures_of(answer, kind, true)));
  }
  return out.dump(2) + "\n";
}

Result<TableAnswer> predict_steps(const TableCommand& command, const sim::MeasuredTable& table) {
  const Result<sim::Calibration> calibration =
      load_calibration(command.calibration, table.machine_type);
  if (!calibration) return calibration.error();
  TableAnswer answer{command.file, calibration->name + " (" + calibration->origin + ")", {}};
  for (std::size_t i = 0; i < table.steps.size(); ++i) {
    const sim::MeasuredStep& step = table.steps[i];
    const auto figures = sim::compare_row(step, i + 1, calibration->cost);
    if (!figures)
      return Error{command.file + ", row " + std::to_string(i + 1) + ": " + figures.error().message,
                   {},
                   figures.error().fix};
    const bool known = contains(calibration->fitted_on, step.label);
    for (const Comparison& figure : *figures) answer.rows.push_back({step.label, figure, known});
  }
  return answer;
}

bool is_point(const std::vector<sim::NcclCurve>& curves, const sim::MeasuredCollective& measured) {
  for (const sim::NcclCurve& curve : curves)
    if (curve.machine == measured.machine && curve.ranks == measured.ranks)
      for (const sim::NcclCurve::Point& point : curve.points)
        if (point.bytes == static_cast<double>(measured.bytes)) return true;
  return false;
}

// As `simulate collective --machine` and scenarios have it, in place of measured curves.
Result<TableAnswer> predict_on_machine(const TableCommand& command,
                                       const sim::MeasuredTable& table) {
  const Result<sim::Machine> machine = sim::load_machine(command.machine);
  if (!machine) return machine.error();
  TableAnswer answer{command.file, command.machine, {}};
  std::size_t row = 0;
  for (const sim::MeasuredCollective& measured : table.collectives) {
    ++row;
    sim::ProgramCall call;
    call.op = Op::all_reduce;
    call.bytes = sim::Bytes{measured.bytes};
    if (measured.ranks % measured.nodes != 0)
      return Error{command.file + ", row " + std::to_string(row) + ": " +
                       std::to_string(measured.nodes) + " nodes do not hold equally many of " +
                       std::to_string(measured.ranks) + " ranks",
                   {},
                   "correct \"gpus\" or \"nodes\""};
    const sim::GroupPlace place{measured.ranks, measured.nodes, measured.ranks / measured.nodes};
    const Result<sim::Picos> time = sim::call_time(call, place, *machine);
    if (!time) return time.error();
    const bool fitted = machine->nccl && contains(machine->nccl->fitted_to, measured.label);
    answer.rows.push_back({measured.label,
                           {Comparison::Kind::seconds, row, time->seconds(), measured.seconds},
                           fitted});
  }
  return answer;
}

// Leaves the rows whose labels begin with `only`.
void keep_only(TableAnswer& answer, const std::string& only) {
  std::erase_if(answer.rows, [&](const ComparedRow& row) { return !row.label.starts_with(only); });
}

Result<TableAnswer> predict_collectives(const TableCommand& command,
                                        const sim::MeasuredTable& table) {
  if (!command.machine.empty()) return predict_on_machine(command, table);
  const std::string file =
      command.curves.empty() ? "sim/machines/calibration-nccl.yaml" : command.curves;
  Result<std::string> text = command.curves.empty()
                                 ? Result<std::string>(std::string(sim::shipped_nccl_curves()))
                                 : read_input(command.curves);
  if (!text) return text.error();
  const auto curves = sim::parse_nccl_curves(*text, file);
  if (!curves) return curves.error();
  TableAnswer answer{command.file, file, {}};
  std::size_t row = 0;
  for (const sim::MeasuredCollective& measured : table.collectives) {
    ++row;
    const auto seconds = sim::nccl_seconds(*curves, measured.machine, measured.ranks,
                                           static_cast<double>(measured.bytes));
    if (!seconds) return seconds.error();
    answer.rows.push_back({measured.label,
                           {Comparison::Kind::seconds, row, *seconds, measured.seconds},
                           is_point(*curves, measured)});
  }
  return answer;
}

ExitStatus simulate_table(const TableCommand& command) {
  if (const Status output = check_simulation_output(command.output); !output)
    return fail(output.error());
  const Result<sim::MeasuredTable> table = load_measured_table(command.file);
  if (!table) return fail(table.error());
  if (table->collectives.empty() && !command.machine.empty())
    return fail({"--machine prices collectives, and the table has training steps",
                 {command.file},
                 "leave it out, or give a table of nccl-tests"});
  Result<TableAnswer> answer = table->collectives.empty() ? predict_steps(command, *table)
                                                          : predict_collectives(command, *table);
  if (!answer) return fail(answer.error());
  keep_only(*answer, command.only);
  if (answer->rows.empty())
    return fail({"no row begins with \"" + printable(command.only) + "\"",
                 {command.file},
                 "give --only the beginning of a label that the whole table shows"});
  const Status written =
      write_simulation(table_answer_text(*answer), table_answer_json(*answer), command.output);
  return written ? ExitStatus::clean : fail(written.error(), ExitStatus::own_failure);
}

}  // namespace

Result<sim::MeasuredTable> load_measured_table(const std::string& path) {
  const Result<std::string> text = read_file(path, std::size_t{256} << 20U);
  if (!text) return text.error();
  return sim::parse_measured_table(*text, path);
}

Result<sim::Calibration> load_calibration(const std::string& given,
                                          const std::string& machine_type) {
  if (given.empty()) return sim::shipped_calibration(machine_type);
  const std::vector<std::string> shipped = sim::shipped_calibration_names();
  if (std::find(shipped.begin(), shipped.end(), given) != shipped.end())
    return sim::shipped_calibration(given);
  const Result<std::string> text = read_input(given);
  if (!text) return text.error();
  return sim::parse_calibration(*text, given);
}

void add_simulate_table(CLI::App& simulate, ExitStatus& status) {
  auto command = std::make_shared<TableCommand>();
  CLI::App* sub = simulate.add_subcommand("table", "Predict the rows of a table of measurements");
  sub->footer(kTableFooter);
  sub->add_option("FILE", command->file, "The table, as JSON")->required();
  sub->add_option("--calibration", command->calibration,
                  "A file, or the name of a shipped calibration;\nleft out: that of the table's "
                  "machines")
      ->type_name("NAME|FILE");
  sub->add_option("--nccl-curves", command->curves,
                  "For tables of nccl-tests: points of all-reduces;\nleft out: the shipped ones")
      ->type_name("FILE");
  sub->add_option("--machine", command->machine,
                  "For tables of nccl-tests: a machine file, in place\nof measured curves")
      ->type_name("FILE");
  sub->add_option("--only", command->only, "Only the rows whose label begins so")
      ->type_name("TEXT");
  add_simulation_output(*sub, command->output);
  sub->callback([command, &status] { status = simulate_table(*command); });
}

// lockstep simulate fit FILE: a calibration from a few rows of a table of measurements.

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
