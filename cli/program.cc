#include "cli/program.h"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <iostream>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/terminal.h"
#include "base/text.h"
#include "base/tool_version.h"
#include "cli/commands.h"
#include "reports/exit_status.h"
#include "reports/output_targets.h"

namespace lockstep::cli {
namespace {

constexpr const char* kDescription =
    "Finds why a distributed training job hangs, dies or computes the wrong thing.";

constexpr const char* kProgramFooter = R"(Examples:
  Try it on a sample hang, in a second:
    lockstep demo
  Why did your job hang? Give it what the ranks left:
    lockstep verify /tmp/job-4711/
  Run a job on real processes that hangs, prove the hang and explain it:
    lockstep run scenarios/modality/manual_hang_bad.yaml
  Fail a CI job on what a recorded run shows:
    lockstep verify --ci traces/

Exit status: 0 clean, 1 findings, 2 bad usage or scenario, 3 inconclusive,
4 the tool failed.
`lockstep COMMAND --help` shows the options and examples of a command.)";

// The error for a first word that is not a command: what was probably meant.
int unknown_command(const std::string& word, const std::vector<std::string>& commands) {
  std::error_code unknown;
  std::string fix = "`lockstep --help` lists the commands";
  if (const std::string meant = nearest(word, commands); !meant.empty())
    fix = fmt::format("did you mean `lockstep {}`?", meant);
  else if (std::filesystem::exists(word, unknown))  // `lockstep dumps/`
    fix = fmt::format("to find out what is wrong with it: lockstep verify {}", printable(word));
  print_error(fmt::format("error: no command \"{}\"\n  fix: {}", printable(word), fix));
  return static_cast<int>(reports::ExitStatus::bad_usage);
}

int usage_error(const CLI::App& app, const CLI::ParseError& error,
                const std::vector<std::string>& arguments) {
  print_error(fmt::format("error: {}\n  fix: {}", printable(usage_problem(error)),
                          usage_fix(app, error, arguments)));
  return static_cast<int>(reports::ExitStatus::bad_usage);
}

// A heading in `lockstep --help`, and the functions that add its commands, in the order shown.
struct CommandGroup {
  const char* heading;
  std::vector<void (*)(CLI::App&, reports::ExitStatus&)> add;
};

void add_commands(CLI::App& app, reports::ExitStatus& status) {
  const CommandGroup groups[] = {
      {"Find what is wrong", {add_demo, add_verify, add_watch, add_explain, add_compare}},
      {"Train and record", {add_run, add_record}},
      {"Prove for every mix of batches", {add_derive, add_check_certificate}},
      {"Predict", {add_simulate, add_sweep, add_calibrate}},
      {"Files", {add_scenario, add_convert, add_completion}},
  };
  for (const CommandGroup& group : groups) {
    for (const auto add : group.add) {
      add(app, status);
      // The one that `add` has just appended.
      app.get_subcommands({}).back()->group(group.heading);
    }
  }
}

// The columns of help texts: the terminal's, from 60 to 100; 80 where there is none. Longer lines
// are harder to read.
std::size_t help_columns() {
  if (::isatty(STDOUT_FILENO) != 1) return 80;
  return std::clamp<std::size_t>(terminal_size(STDOUT_FILENO).width, 60, 100);
}

int run(int argc, const char* const* argv) {
  reports::ExitStatus status = reports::ExitStatus::clean;
  CLI::App app(kDescription, "lockstep");
  app.set_version_flag("--version", std::string(tool_version()), "Print the version");
  app.set_help_flag("-h,--help", "Print this help");
  app.footer(kProgramFooter);
  app.require_subcommand(0, 1);
  use_help_layout(app, help_columns());
  add_commands(app, status);
  std::vector<std::string> given(argv + std::min(argc, 1), argv + argc);
  // What the shells' completion scripts ask, with words that may be anything.
  if (given.size() >= 2 && given[0] == "completion" && given[1] == "--for") {
    std::cout << completions(app, {given.begin() + 2, given.end()});
    return static_cast<int>(status);
  }
  // `lockstep help verify`, as git has it.
  if (!given.empty() && given.front() == "help") {
    given.erase(given.begin());
    given.emplace_back("--help");
  }
  Renamed renamed = with_new_names(given);
  if (!renamed.arguments.empty() && !renamed.arguments.front().starts_with("-")) {
    const std::vector<std::string> commands = command_names(app);
    const std::string& word = renamed.arguments.front();
    if (std::find(commands.begin(), commands.end(), word) == commands.end())
      return unknown_command(word, commands);
  }
  if (!renamed.note.empty())
    print_error(
        fmt::format("note: {}; the next release will not accept the old form", renamed.note));
  try {
    // CLI11 takes a vector in reverse.
    std::reverse(renamed.arguments.begin(), renamed.arguments.end());
    app.parse(std::move(renamed.arguments));
  } catch (const CLI::CallForHelp&) {
    std::cout << painted_help(app.help(), {stdout_wants_color()});
    return static_cast<int>(status);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --version
    return usage_error(app, error, given);
  }
  if (app.get_subcommands().empty()) {
    std::cerr << app.help();
    return static_cast<int>(reports::ExitStatus::bad_usage);
  }
  return static_cast<int>(status);
}

}  // namespace

int run_program(int argc, const char* const* argv) {
  try {
    constexpr auto kFailed = static_cast<int>(reports::ExitStatus::own_failure);
    const int status = run(argc, argv);
    const Status printed = reports::write_stdout("");  // fails where the disk is full, for example
    if (printed || status == kFailed) return status;   // what failed has said why
    return static_cast<int>(reports::fail(printed.error(), reports::ExitStatus::own_failure));
  } catch (const std::bad_alloc&) {
    std::cerr << "lockstep: error: out of memory\n"
                 "  fix: use a machine that has more, or give fewer files at once\n";
  } catch (const std::exception& error) {
    std::cerr << fmt::format(
        "lockstep: error: {}\n"
        "  fix: this should not happen: please report it, with the files that show it\n",
        printable(error.what()));
  }
  return static_cast<int>(reports::ExitStatus::own_failure);
}

}  // namespace lockstep::cli
