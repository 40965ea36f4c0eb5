// lockstep calibrate: measures this machine for `lockstep simulate`.
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <thread>

#include "base/files/write_file.h"
#include "base/tables.h"
#include "base/text.h"
#include "base/tool_version.h"
#include "cli/commands.h"
#include "cli/report_options.h"
#include "runtime/forecast/calibrate.h"
#include "runtime/launch/this_machine.h"

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

std::string error_of(const runtime::Calibration& c) {
  return fixed(100 * c.work.median_error, 1) + " %";
}

std::string comment_for(const runtime::Calibration& c, const CalibrateCommand& command) {
  const auto ranks = static_cast<std::uint64_t>(command.ranks);
  return "# Measured by `lockstep calibrate --ranks " + std::to_string(command.ranks) + "`, " +
         std::string(tool_version()) + ".\n# compute, memory, kernels: fitted to " +
         plural(c.steps, "step") + " of the shipped small models, each alone on a core;\n" +
         "#   median error " + error_of(c) +
         ". \"peak\" is what their products reach.\n# links: fitted to " +
         plural(c.calls, "all-reduce") + " by Gloo over up to " + plural(ranks, "rank") +
         "\n#   of this machine: \"alpha\" and \"beta\" are what a core works for a hop, \"wake\" "
         "is the\n"
         "#   rest of it. \"slice\" is not measured: it is what Linux takes.\n"
         "# contention, refill: fitted to how long the steps of small jobs take.\n"
         "# What the keys mean: docs/simulate-scenarios.md.\n";
}

std::string summary(const runtime::Calibration& c, const std::string& file) {
  const sim::Machine& m = c.machine;
  const sim::LinkCost& link = m.links.front();
  const auto line = [](const char* what, const std::string& value) {
    return pad_right(what, 17) + value + "\n";
  };
  std::string products;
  for (const auto& [type, compute] : m.compute)
    products +=
        line(products.empty() ? "products" : "",
             fixed(static_cast<double>(compute.peak.per_second) * 1e-9, 1) + " GFLOP/s in " + type);
  return products +
         line("memory", fixed(m.memory_bandwidth.bytes_per_second() * 1e-9, 2) + " GB/s") +
         line("dispatch", fixed(m.dispatch.seconds() * 1e6, 2) + " us an operation") +
         line("sample", fixed(m.sample.seconds() * 1e6, 1) + " us to prepare one") +
         line("all-reduce", fixed(link.alpha.seconds() * 1e6, 1) + " us a hop, " +
                                fixed(link.beta.bytes_per_second() * 1e-9, 3) + " GB/s, " +
                                fixed(m.wake.seconds() * 1e6, 1) + " us to wake, " +
                                fixed(m.start.seconds() * 1e6, 0) + " us to start") +
         line("cores", std::to_string(*m.cores) + ", all busy " + fixed(m.contention, 2) +
                           " times slower; +" + fixed(m.refill.seconds() * 1e6, 0) +
                           " us after a wait") +
         line("median error", error_of(c) + " of a step's work") +
         line("written to", printable(file));
}

reports::ExitStatus calibrate_command(const CalibrateCommand& command) {
  const Result<std::string> worker = runtime::find_worker(runtime::worker_search_of_this_process());
  if (!worker) return reports::fail(worker.error());
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
  options.cores = std::max(1U, std::thread::hardware_concurrency());
  options.quiet = command.quiet;
  const Result<runtime::Calibration> measured = runtime::calibrate(options, interrupts);
  if (const int signal = interrupts.poll(); signal != 0) return reports::interrupted_by(signal);
  if (!measured) return reports::fail(measured.error());
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
  add_calibrate_fit(*command, status);
  command->callback([options, command, &status] {
    if (!command->get_subcommands().empty()) return;
    if (options->output.empty()) throw CLI::RequiredError("--output");
    status = calibrate_command(*options);
  });
}

}  // namespace lockstep::cli
