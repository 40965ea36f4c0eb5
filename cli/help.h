// How `--help` looks, and what is said about arguments that make no sense.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/terminal.h"

namespace lockstep::cli {

// Lays help texts out for a terminal of `columns` columns. The same text for the same columns.
void use_help_layout(CLI::App& app, std::size_t columns);

// `text` as a terminal shows it: headings and the names of commands and options stand out.
std::string painted_help(const std::string& text, const Paint& paint);

// What to do about a command line that was refused: what was probably meant, else where to read.
// `arguments`: as given, without the program's name.
std::string usage_fix(const CLI::App& app, const CLI::ParseError& error,
                      const std::vector<std::string>& arguments);

}  // namespace lockstep::cli
