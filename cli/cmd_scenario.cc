// lockstep scenario: lists, checks and describes scenario files.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "base/documents/yaml_document.h"
#include "base/files/read_file.h"
#include "base/tables.h"
#include "base/terminal.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/input_files.h"
#include "reports/exit_status.h"
#include "reports/findings/finding_words.h"
#include "runtime/job/scenario_example.h"
#include "runtime/job/study.h"
#include "runtime/launch/run_summary.h"
#include "runtime/launch/scenario_files.h"

namespace lockstep::cli {
namespace {

constexpr const char* kScenarioFooter = R"(Examples:
  A file to start from, with every key explained:
    lockstep scenario --new > my_job.yaml
    lockstep scenario --new --strategy fsdp --remedy dummy-image
  What is in a folder, and is it right?
    lockstep scenario --list scenarios/
    lockstep scenario --check my_job.yaml
  For other programs, and for your editor:
    lockstep scenario --json scenarios/
    lockstep scenario --schema > scenario.schema.json

Exit status: 0 all files are right, 2 one is not, or bad usage.
docs/scenarios.md describes the format.)";

struct ScenarioCommand {
  bool list = false;
  bool schema = false;
  bool check = false;
  bool json = false;
  bool make_new = false;
  runtime::ExampleOptions example;
  std::vector<std::string> paths;
};

//   scenarios/fsdp/fsdp_ok.yaml   fully sharded data parallel
//   scenarios/fsdp/hsdp_ok.yaml   hybrid sharding over two copies
// The folder of those that are shipped is named once. A file that is not a scenario does not keep
// the others from being listed.
reports::ExitStatus list_scenarios(const std::vector<std::string>& files,
                                   const StandardInput& input) {
  reports::ExitStatus status = reports::ExitStatus::clean;
  const bool given = input.has(files.front());
  const std::string folder = given ? "" : reports::common_folder(files, 1);
  if (!folder.empty()) std::cout << fmt::format("in {}\n", printable(folder));
  const auto name = [&](const std::string& file) {
    return printable(input.name_of(file).substr(folder.size()));
  };
  std::size_t width = 0;
  for (const std::string& file : files) width = std::max(width, columns_of(name(file)));
  const std::size_t columns = stdout_columns();
  // Below each other, unless that leaves too little room.
  const std::size_t indent = width + 24 < columns ? width + 2 : 2;
  for (const std::string& file : files) {
    const Result<runtime::Scenario> scenario = runtime::load_checked_scenario(file);
    if (!scenario) {
      status = input.fail(scenario.error());
      continue;
    }
    std::cout << fmt::format("{}  {}\n", pad_right(name(file), width),
                             wrap(printable(scenario->name), columns, indent, width + 2));
    if (!scenario->description.empty())
      std::cout << fmt::format("  {}\n", wrap(printable(scenario->description), columns, 2, 2));
  }
  return status;
}

// "job.yaml: valid: 2 ranks on gloo, FSDP, dummy images, 4 steps", or the error with its location.
reports::ExitStatus check(const std::vector<std::string>& files, const StandardInput& input) {
  reports::ExitStatus status = reports::ExitStatus::clean;
  for (const std::string& file : files) {
    const Result<runtime::Scenario> scenario = runtime::load_checked_scenario(file);
    // A study's combinations are checked, too.
    const auto study = scenario ? runtime::load_study(file) : scenario.error();
    if (!study)
      status = input.fail(study.error());
    else
      std::cout << printable(input.name_of(file)) << ": valid: " << runtime::job_in_words(*scenario)
                << "\n";
  }
  return status;
}

// Prints one line per file, with the keys that it has (defaults are not filled in).
reports::ExitStatus print_json(const std::vector<std::string>& files, const StandardInput& input) {
  reports::ExitStatus status = reports::ExitStatus::clean;
  for (const std::string& file : files) {
    // Checked, but printed as it was written: readers see which keys somebody set.
    const Result<runtime::Scenario> scenario = runtime::load_checked_scenario(file);
    const Result<std::string> text = scenario ? read_input(file) : scenario.error();
    const Result<YamlDocument> document = text ? parse_yaml(*text, file) : text.error();
    if (!document) {
      status = input.fail(document.error());
      continue;
    }
    const nlohmann::ordered_json line = {{"file", printable(input.name_of(file))},
                                         {"scenario", document->value}};
    std::cout << line.dump() << "\n";
  }
  return status;
}

reports::ExitStatus run_scenario(const ScenarioCommand& command) {
  if (command.schema) {
    std::cout << runtime::scenario_schema();
    return reports::ExitStatus::clean;
  }
  if (command.make_new) {
    const Result<std::string> text = runtime::example_scenario(command.example);
    if (!text) return reports::fail(text.error());
    std::cout << *text;
    return reports::ExitStatus::clean;
  }
  std::vector<std::string> paths = command.paths;
  StandardInput input;
  for (std::string& path : paths)
    if (const Status taken = input.take(path); !taken) return reports::fail(taken.error());
  if (command.list && paths.empty()) {
    std::error_code unknown;
    // One's own first: whoever works in a checkout edits those.
    const bool here = std::filesystem::is_directory("scenarios", unknown);
    paths = {here ? "scenarios" : shipped_folder("scenarios").value_or("scenarios")};
  }
  const Result<std::vector<std::string>> files = runtime::scenario_files(paths);
  if (!files) return reports::fail(files.error());
  if (command.json) return print_json(*files, input);
  return command.list ? list_scenarios(*files, input) : check(*files, input);
}

}  // namespace

void add_scenario(CLI::App& app, reports::ExitStatus& status) {
  CLI::App* command = app.add_subcommand("scenario", "List, check and describe scenario files");
  const auto options = std::make_shared<ScenarioCommand>();
  CLI::Option_group* what = command->add_option_group("One of these");
  what->add_flag("--list", options->list,
                 "List the scenarios of a folder; default: scenarios/,\nor those that are shipped");
  what->add_flag("--check", options->check, "Check files without running them");
  what->add_flag("--json", options->json, "Print files as JSON, one line each");
  what->add_flag("--schema", options->schema, "Print the format's JSON Schema");
  CLI::Option* make_new =
      what->add_flag("--new", options->make_new, "Print an example with every key, to start from");
  what->require_option(1);
  command
      ->add_option("--strategy", options->example.strategy, "Strategy of the example; default: ddp")
      ->type_name("NAME")
      ->needs(make_new);
  command->add_option("--remedy", options->example.remedy, "Remedy of the example; default: none")
      ->type_name("NAME")
      ->needs(make_new);
  command->add_option("PATH", options->paths, "Scenario files, or folders that hold them")
      ->type_name("");
  command->footer(kScenarioFooter);
  command->callback([options, command, &status] {
    if ((options->check || options->json) && options->paths.empty())
      // CLI11 knows no option that is required with one flag and not with another.
      throw CLI::RequiredError(
          fmt::format("{}{}: PATH", command->get_name(), options->check ? " --check" : " --json"));
    status = run_scenario(*options);
  });
}

}  // namespace lockstep::cli
