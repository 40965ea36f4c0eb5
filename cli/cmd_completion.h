// What the shells' completion scripts ask for.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace lockstep::cli {

// What may stand in place of the last word of `typed`, the words after the program's name: a line
// each, with a tab before its description. Empty: nothing, or files.
std::string completions(const CLI::App& app, const std::vector<std::string>& typed);

}  // namespace lockstep::cli
