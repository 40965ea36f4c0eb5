#include "cli/program.h"

#include <algorithm>
#include <exception>
#include <iostream>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/text.h"
#include "base/tool_version.h"
#include "cli/commands.h"
#include "cli/renamed.h"
#include "reports/exit_status.h"

namespace lockstep::cli {
namespace {

constexpr const char* kDescription =
    "Finds why a distributed training job hangs, dies or computes the wrong thing.";

constexpr const char* kProgramFooter = R"(Examples:
  Run a job on real processes, prove a hang and explain it:
    lockstep run scenarios/modality/manual_hang_bad.yaml
  Find out why a job hung, from the traces of its ranks:
    lockstep verify /tmp/job-4711/
  Fail a CI job on what a recorded run shows:
    lockstep verify --ci traces/

Exit status: 0 clean, 1 findings, 2 bad usage or scenario, 3 inconclusive,
4 the tool failed.
`lockstep COMMAND --help` shows the options and examples of a command.)";

// CLI11 lists what an option needs and excludes in the order of addresses, which differs from run
// to run. Sort the names, so that help texts are stable.
class SteadyHelp : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    std::string out = CLI::Formatter::make_option_opts(option);
    out.erase(std::min({out.size(), out.find(" Needs:"), out.find(" Excludes:")}));
    return out + names(" Needs:", option->get_needs()) +
           names(" Excludes:", option->get_excludes());
  }

  // Hides a flag's optional value, which CLI11 shows as "--ci{auto}".
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    std::string out = CLI::Formatter::make_option_name(option, is_positional);
    out.erase(std::min(out.size(), out.find('{')));
    return out;
  }

 private:
  static std::string names(const char* label, const std::set<CLI::Option*>& options) {
    std::vector<std::string> sorted;
    for (const CLI::Option* option : options) sorted.push_back(option->get_name());
    std::sort(sorted.begin(), sorted.end());
    std::string out = sorted.empty() ? "" : label;
    for (const std::string& name : sorted) out += " " + name;
    return out;
  }
};

// The command that an unknown first word probably means; empty if none is similar.
std::string suggestion(const CLI::App& app, std::string_view word) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  if (std::find(names.begin(), names.end(), word) != names.end()) return {};
  return nearest(word, names);
}

int usage_error(const CLI::App& app, const CLI::ParseError& error, int argc,
                const char* const* argv) {
  const std::string_view word = argc > 1 ? std::string_view(argv[1]) : std::string_view();
  const bool is_command = !word.empty() && word.front() != '-';
  std::cerr << "lockstep: error: ";
  if (is_command && app.get_subcommands().empty()) {
    std::cerr << "no command \"" << printable(word) << "\"\n";
    if (const std::string meant = suggestion(app, word); !meant.empty())
      std::cerr << "  fix: did you mean `lockstep " << meant << "`?\n";
    else
      std::cerr << "  fix: `lockstep --help` lists the commands\n";
  } else {
    std::cerr << printable(error.what()) << "\n  fix: see `lockstep ";
    for (const CLI::App* command : app.get_subcommands()) std::cerr << command->get_name() << " ";
    std::cerr << "--help`\n";
  }
  return static_cast<int>(reports::ExitStatus::bad_usage);
}

// A heading in `lockstep --help`, and the functions that add its commands, in the order shown.
struct CommandGroup {
  const char* heading;
  std::vector<void (*)(CLI::App&, reports::ExitStatus&)> add;
};

void add_commands(CLI::App& app, reports::ExitStatus& status) {
  const CommandGroup groups[] = {
      {"Train and watch", {add_run, add_record, add_watch}},
      {"Find what is wrong", {add_verify, add_compare, add_explain}},
      {"Prove for every mix of batches", {add_derive, add_check_certificate}},
      {"Predict", {add_simulate, add_sweep, add_calibrate}},
      {"Files", {add_scenario, add_convert, add_completion}},
  };
  for (const CommandGroup& group : groups) {
    for (const auto add : group.add) {
      add(app, status);
      app.get_subcommands({}).back()->group(group.heading);
    }
  }
}

int run(int argc, const char* const* argv) {
  reports::ExitStatus status = reports::ExitStatus::clean;
  CLI::App app(kDescription, "lockstep");
  app.set_version_flag("--version", std::string(tool_version()));
  app.footer(kProgramFooter);
  app.require_subcommand(0, 1);
  const auto help = std::make_shared<SteadyHelp>();
  help->column_width(26);
  app.formatter(help);
  add_commands(app, status);
  Renamed renamed = with_new_names({argv + std::min(argc, 1), argv + argc});
  if (!renamed.note.empty())
    std::cerr << "lockstep: note: " << renamed.note
              << "; the next release will not accept the old form\n";
  try {
    // CLI11 takes a vector in reverse.
    std::reverse(renamed.arguments.begin(), renamed.arguments.end());
    app.parse(std::move(renamed.arguments));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    return usage_error(app, error, argc, argv);
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
    return run(argc, argv);
  } catch (const std::bad_alloc&) {
    std::cerr << "lockstep: error: out of memory\n"
                 "  fix: use a machine that has more, or give fewer files at once\n";
  } catch (const std::exception& error) {
    std::cerr << "lockstep: error: " << printable(error.what())
              << "\n  fix: this should not happen: please report it, with the files that show it\n";
  }
  return static_cast<int>(reports::ExitStatus::own_failure);
}

}  // namespace lockstep::cli
