// Completion on the command line of bash, zsh and fish: scripts made from the commands as they are
// defined, so that none can be forgotten.
//
// What is completed: commands and their own commands, options, and the values of options whose type
// lists them ("error|warning|note|never"); everywhere else files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace lockstep {

// What can be completed behind `path`.
struct CompletedCommand {
  struct Option {
    std::vector<std::string> names;  // "--output", "-o"
    std::string description;         // its first line
    bool takes_value = false;
    std::vector<std::string> values;  // where the option lists them
  };
  std::vector<std::string> path;  // {"simulate", "collective"}; empty: the program itself
  std::string description;
  std::vector<Option> options;
  std::vector<std::string> commands;  // of its own
};

// The program and all its commands, in the order of their definition. Hidden ones are left out.
std::vector<CompletedCommand> completed_commands(const CLI::App& app);

enum class Shell : std::uint8_t { bash, zsh, fish };

// The script for a program called `name`.
std::string completion_script(Shell shell, const std::string& name,
                              const std::vector<CompletedCommand>& commands);

}  // namespace lockstep
