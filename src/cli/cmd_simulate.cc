// lockstep simulate WHAT: predicts how long things take, on machines that are not at hand.
#include "cli/cmd_simulate.h"

#include <algorithm>
#include <iostream>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "base/write_file.h"
#include "cli/commands.h"
#include "cli/output.h"

namespace lockstep {
namespace {

constexpr const char* kFooter = R"(Examples:
  How long does a ring all-reduce over 64 ranks take?
    lockstep simulate collective --op all_reduce --algorithm ring \
      --ranks 64 --bytes 1MiB --alpha 500ns --beta 50GB/s
  How long does a step of this job take on other machines?
    lockstep simulate job.yaml --machine machines/dgx-h100.yaml
  Does this program hang, and how long does it take?
    lockstep simulate trace program/ --alpha 1us --beta 1GB/s
  `lockstep simulate WHAT --help` has more.

What is computed, and from which sources: docs/simulate.md.)";

struct Target {
  bool json = false;
  std::string path;
};

Result<std::vector<Target>> parse_targets(const SimulationOutput& output) {
  std::vector<Target> targets;
  for (const std::string& text : output.outputs) {
    const std::size_t equals = text.find('=');
    const std::string kind = text.substr(0, equals);
    if (equals == std::string::npos || equals + 1 == text.size())
      return Error{"--output " + printable(text) + ": expected KIND=PATH", {}, "write json=FILE"};
    if (kind != "text" && kind != "json") {
      return Error{
          "--output " + printable(text) + ": no such kind of result", {}, "kinds: text and json"};
    }
    targets.push_back({kind == "json", text.substr(equals + 1)});
  }
  if (std::count_if(targets.begin(), targets.end(), [](const Target& t) { return t.path == "-"; }) >
      1)
    return Error{"two --output options write to standard output", {}, "send one of them to a file"};
  return targets;
}

Status print(const std::string& text) {
  std::cout << text << std::flush;
  if (std::cout) return Status::ok();
  return Error{"cannot write to standard output", {}, "check where it is redirected to"};
}

}  // namespace

void add_simulation_output(CLI::App& command, SimulationOutput& output) {
  command
      .add_option("-o,--output", output.outputs,
                  "Write the result as text or json, e.g. json=r.json;\n"
                  "the path \"-\" is standard output")
      ->type_name("KIND=PATH")
      ->allow_extra_args(false);
  command.add_flag("-q,--quiet", output.quiet, "Do not print the text");
}

Status check_simulation_output(const SimulationOutput& output) {
  const Result<std::vector<Target>> targets = parse_targets(output);
  if (!targets) return targets.error();
  return Status::ok();
}

Status write_simulation(const std::string& text, const std::string& json,
                        const SimulationOutput& output) {
  const Result<std::vector<Target>> targets = parse_targets(output);
  if (!targets) return targets.error();
  const bool taken =
      std::any_of(targets->begin(), targets->end(), [](const Target& t) { return t.path == "-"; });
  if (!taken && !output.quiet) {
    if (Status printed = print(text); !printed) return printed;
  }
  for (const Target& target : *targets) {
    const std::string& content = target.json ? json : text;
    if (Status s = target.path == "-" ? print(content) : write_file(target.path, content); !s)
      return s;
  }
  return Status::ok();
}

Error with_option(const std::string& option, Error error) {
  error.message = option + ": " + error.message;
  return error;
}

void add_simulate(CLI::App& app, ExitStatus& status) {
  CLI::App* command = app.add_subcommand("simulate", "Predict times, on machines not at hand");
  command->require_subcommand(0, 1);
  command->footer(kFooter);
  add_simulate_collective(*command, status);
  add_simulate_scenario(*command, status);
  add_simulate_trace(*command, status);
  add_simulate_pipeline(*command, status);
  add_simulate_table(*command, status);
  add_simulate_fit(*command, status);
}

}  // namespace lockstep
