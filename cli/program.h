// The command line of `lockstep` as a function, so that tests can call it, and what it does before
// and after a command: old names, completions, help.
#pragma once

#include <string>
#include <vector>

#include "base/terminal.h"

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace lockstep::cli {

// Parses the arguments, runs the command, prints to standard output and standard error, and returns
// the exit status. Never throws.
int run_program(int argc, const char* const* argv);

// Commands and options that had other names in the release before this one.
struct Renamed {
  std::vector<std::string> arguments;  // as this release takes them
  std::string note;  // what to write from now on; empty: nothing in them has another name now
};

// `arguments`: what follows the program's name. The old names work until the next release.
Renamed with_new_names(std::vector<std::string> arguments);

// What the shells' completion scripts ask for: what may stand in place of the last word of `typed`,
// the words after the program's name: a line each, with a tab before its description. Empty:
// nothing, or files.
std::string completions(const CLI::App& app, const std::vector<std::string>& typed);

// Lays help texts out for a terminal of `columns` columns. The same text for the same columns.
void use_help_layout(CLI::App& app, std::size_t columns);

// `text` as a terminal shows it: headings and the names of commands and options stand out.
std::string painted_help(const std::string& text, const Paint& paint);

// The commands below `app`, in the order in which they were added.
std::vector<std::string> command_names(const CLI::App& app);

// Why a command line was refused, in other words than CLI11's: "unknown option --outpt".
std::string usage_problem(const CLI::ParseError& error);
// What to do about a command line that was refused: what was probably meant, else where to read.
// `arguments`: as given, without the program's name.
std::string usage_fix(const CLI::App& app, const CLI::ParseError& error,
                      const std::vector<std::string>& arguments);

}  // namespace lockstep::cli
