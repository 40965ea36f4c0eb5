// lockstep calibrate: measures this machine for `lockstep simulate`.
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>

#include <fmt/format.h>

#include "base/files/write_file.h"
#include "base/quantities.h"
#include "base/result.h"
#include "base/status_line.h"
#include "base/text.h"
#include "base/threads.h"
#include "base/tool_version.h"
#include "cli/cmd_simulate.h"
#include "cli/commands.h"
#include "cli/report_options.h"
#include "reports/forecasts/measured_table.h"
#include "reports/table.h"
#include "runtime/forecast/calibrate.h"
#include "runtime/launch/this_machine.h"
#include "sim/machine/machine.h"
#include "sim/measured/evaluation.h"
#include "sim/measured/measured_table.h"
#include "sim/transformer/calibration.h"

namespace lockstep::cli {
namespace {

constexpr const char* kCalibrateFooter = R"(Examples:
  Measure this machine, with four ranks that all-reduce:
    lockstep calibrate --ranks 4 -o here.yaml
  Predict how long `lockstep run` takes on it:
    lockstep simulate job.yaml --machine here.yaml
  How far off are the predictions for clusters, on measured training steps?
    lockstep calibrate check vtrain_measured_multi.json

Trains the shipped small models for some steps: alone (first counted, then
timed), and as jobs of up to --ranks processes, each --repeats times. It
measures processor time, except for all-reduces; keep the machine idle.
How the numbers are fitted: docs/simulate-scenarios.md.

Exit status: 0 measured; 2 bad usage, or a measurement that failed.)";

struct CalibrateCommand {
  std::string output, name = "this machine";
  int ranks = 2;
  int repeats = 3;
  bool quiet = false;
};

// The head of the machine file: whoever finds it later sees what its numbers rest on.
std::string comment_for(const runtime::Calibration& c, const CalibrateCommand& command) {
  const auto ranks = static_cast<std::uint64_t>(command.ranks);
  return fmt::format(
      R"(# Measured by `lockstep calibrate --ranks {}`, {}.
# compute, memory, kernels: fitted to {} of the shipped small models, each alone on a core;
#   median error {}. "peak" is what their products reach.
# links: fitted to {} by Gloo over up to {}
#   of this machine: "alpha" and "beta" are what a core works for a hop, "wake" is the
#   rest of it. "slice" is not measured: it is what Linux takes.
# contention, refill: fitted to how long the steps of small jobs take.
# What the keys mean: docs/simulate-scenarios.md.
)",
      command.ranks, tool_version(), plural(c.steps, "step"), percent(c.work.median_error),
      plural(c.calls, "all-reduce"), plural(ranks, "rank"));
}

//   products      41.2 GFLOP/s in float32
//   memory        9.8 GB/s
//   all-reduce    18 us per hop, 3.1 GB/s, 11 us to wake, 25 us to start
std::string summary(const runtime::Calibration& c, const std::string& file) {
  const sim::Machine& m = c.machine;
  const sim::LinkCost& link = m.links.front();
  reports::Table table(reports::columns({"", ""}, {}));
  for (const auto& [type, compute] : m.compute)
    table.add(
        // The first row of several names them all.
        {table.empty() ? "products" : "",
         fmt::format("{} GFLOP/s in {}",
                     number_text(static_cast<double>(compute.peak.per_second) * 1e-9), type)});
  table.add({"memory",
             fmt::format("{} GB/s", number_text(m.memory_bandwidth.bytes_per_second() * 1e-9))});
  table.add({"dispatch", fmt::format("{} per operation", duration_text(m.dispatch))});
  table.add({"sample", fmt::format("{} to prepare one", duration_text(m.sample))});
  table.add({"all-reduce",
             fmt::format("{} per hop, {} GB/s, {} to wake, {} to start", duration_text(link.alpha),
                         number_text(link.beta.bytes_per_second() * 1e-9), duration_text(m.wake),
                         duration_text(m.start))});
  table.add({"cores", fmt::format("{}, all busy {} times slower; +{} after a wait", *m.cores,
                                  number_text(m.contention), duration_text(m.refill))});
  table.add({"median error", fmt::format("{} of a step's work", percent(c.work.median_error))});
  table.add({"written to", file});
  return table.text();
}

reports::ExitStatus calibrate_command(const CalibrateCommand& command) {
  const auto parent = std::filesystem::path(command.output).parent_path();
  std::error_code unknown;
  // Now, and not after minutes of measuring.
  if (!parent.empty() && !std::filesystem::is_directory(parent, unknown))
    return reports::fail({"the folder of this file does not exist",
                          {command.output},
                          "make it first, or check how the path is written"});
  if (std::filesystem::is_directory(command.output, unknown))
    return reports::fail({"this is a folder", {command.output}, "name the file to write"});
  // As machine files have it.
  if (command.name.empty() || command.name.size() > 200)
    return reports::fail({fmt::format("--name has {}", plural(command.name.size(), "byte")),
                          {},
                          "give the machine a name of 1 to 200"});
  const Result<std::string> worker = runtime::find_worker(runtime::worker_search_of_this_process());
  if (!worker) return reports::fail(worker.error());
  // Traces of a few dozen short jobs, which nobody reads again.
  const WorkFolder folder("", "lockstep-calibrate-");
  if (!folder.usable())
    return reports::fail(Error{"this folder cannot be made", {folder.path()}, ""});
  Interrupts interrupts;
  runtime::CalibrateOptions options;
  options.worker = *worker;
  options.folder = folder.path();
  options.name = command.name;
  options.ranks = command.ranks;
  options.repeats = command.repeats;
  options.cores = static_cast<std::int64_t>(processors());
  StatusLine line({.silent = command.quiet});  // measuring takes minutes
  options.progress = [&](const std::string& what) { line.show(what); };
  const Result<runtime::Calibration> measured = runtime::calibrate(options, interrupts);
  line.erase();
  // First: after Ctrl-C the error says only that a job ended early.
  if (const int signal = interrupts.poll(); signal != 0) return reports::interrupted_by(signal);
  if (!measured) return reports::fail(folder.for_user(measured.error(), {}));
  const Status written = write_file(
      command.output, sim::machine_text(measured->machine, comment_for(*measured, command)));
  if (!written) return reports::fail(written.error());
  if (!command.quiet) std::cout << summary(*measured, command.output) << std::flush;
  return reports::ExitStatus::clean;
}

}  // namespace

void add_calibrate(CLI::App& app, reports::ExitStatus& status) {
  CLI::App* command = app.add_subcommand("calibrate", "Measure a machine, for simulate");
  const auto options = std::make_shared<CalibrateCommand>();
  command->add_option("-o,--output", options->output, "The machine file to write")
      ->type_name("FILE");
  command->add_option("--ranks", options->ranks, "Processes whose all-reduces are measured")
      ->type_name("N")
      ->check(CLI::Range(2, 256))
      ->capture_default_str();
  command
      ->add_option("--repeats", options->repeats,
                   "Measurements per job: fewer are faster, and less\ncertain")
      ->type_name("N")
      ->check(CLI::Range(1, 8))
      ->capture_default_str();
  command->add_option("--name", options->name, "The machine's name")
      ->type_name("TEXT")
      ->capture_default_str();
  command->add_flag("-q,--quiet", options->quiet, "Print nothing but errors");
  command->footer(kCalibrateFooter);
  command->require_subcommand(0, 1);
  add_calibrate_check(*command, status);
  command->callback([options, command, &status] {
    if (!command->get_subcommands().empty()) return;
    if (options->output.empty()) throw CLI::RequiredError("--output");
    status = calibrate_command(*options);
  });
}

// lockstep calibrate check FILE: every row of a table of measurements, with its prediction.

namespace {

struct TableCommand {
  std::string file, calibration, machine, only;
  SimulationOutput output;
};

constexpr const char* kTableFooter = R"(Examples:
  How far off is the model on measured training steps?
    lockstep calibrate check vtrain_measured_multi.json
  The same with a calibration of your own:
    lockstep calibrate check mine.json --calibration mine.yaml
  What a machine file predicts for all-reduces that were measured on H100:
    lockstep calibrate check nccl_allreduce_h100_a100.json --only h100 \
      --machine dgx-h100

Exit status: 0 compared; 2 bad usage or table; 4 the tool failed.
docs/simulate-workloads.md explains the tables, the model and its sources.)";

// Leaves the rows whose labels begin with `only`.
void keep_only(sim::TableAnswer& answer, const std::string& only) {
  std::erase_if(answer.rows,
                [&](const sim::ComparedRow& row) { return !row.label.starts_with(only); });
}

// A table has training steps, which a calibration predicts, or collectives, which a machine does:
// by default that of the table, which is built in; else the given one.
Result<sim::TableAnswer> predict(const TableCommand& command, const sim::MeasuredTable& table) {
  if (table.collectives.empty()) {
    const Result<sim::Calibration> calibration =
        sim::load_calibration(command.calibration, table.machine_type);
    // Without --calibration it is the table that names one.
    if (!calibration && command.calibration.empty())
      return Error{calibration.error().message, {command.file}, calibration.error().fix};
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
  if (!table->collectives.empty() && !command.calibration.empty())
    return reports::fail({"--calibration prices training steps, and the table has collectives",
                          {command.file},
                          "leave it out, or name what they run on with --machine"});
  Result<sim::TableAnswer> answer = predict(command, *table);
  if (!answer) return reports::fail(answer.error());
  keep_only(*answer, command.only);
  if (answer->rows.empty())
    return reports::fail({fmt::format("no row starts with \"{}\"", printable(command.only)),
                          {command.file},
                          "give --only the beginning of a label that the whole table shows"});
  return write_simulation(
      [&](std::size_t width) { return reports::table_answer_text(*answer, width); },
      reports::table_answer_json(*answer), command.output);
}

}  // namespace

void add_calibrate_check(CLI::App& calibrate, reports::ExitStatus& status) {
  auto command = std::make_shared<TableCommand>();
  CLI::App* sub =
      calibrate.add_subcommand("check", "Compare predictions with a table of measurements");
  sub->footer(kTableFooter);
  sub->add_option("FILE", command->file, "The table, as JSON")->required();
  sub->add_option("--calibration", command->calibration,
                  "The calibration: a file, or the name of a shipped one;\ndefault: that of the "
                  "table's machines")
      ->type_name("NAME|FILE");
  sub->add_option(
         "--machine", command->machine,
         "For tables of nccl-tests: a machine file, or the name\nof a shipped one; default: "
         "the measured machine")
      ->type_name("NAME|FILE");
  sub->add_option("--only", command->only, "Only rows whose label starts with this")
      ->type_name("TEXT");
  add_simulation_output(*sub, command->output);
  sub->callback([command, &status] { status = check_table(*command); });
}

}  // namespace lockstep::cli
