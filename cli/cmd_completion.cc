// lockstep completion SHELL: a script that completes the command line.
//
// For bash, zsh and fish, made from the commands as they are defined, so that none can be
// forgotten.
//
// What is completed: commands and their own commands, options, and the values of options whose type
// lists them ("error|warning|note|never"); everywhere else files.

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/text.h"
#include "cli/commands.h"
#include "reports/exit_status.h"

namespace lockstep::cli {
namespace {

constexpr const char* kCompletionFooter = R"(Examples:
  For this shell only:
    source <(lockstep completion bash)
  Permanently:
    lockstep completion bash \
      > ~/.local/share/bash-completion/completions/lockstep
    lockstep completion zsh > "${fpath[1]}/_lockstep"
    lockstep completion fish > ~/.config/fish/completions/lockstep.fish
The Debian package installs them.)";

// What can be completed after `path`.
struct CompletedCommand {
  struct Option {
    std::vector<std::string> names;  // "--output", "-o"
    std::string description;         // its first line
    bool takes_value = false;
    std::vector<std::string> values;  // if the option's type lists them
  };
  std::vector<std::string> path;  // {"simulate", "collective"}; empty: the program itself
  std::string description;
  std::vector<Option> options;
  std::vector<std::string> commands;  // of its own
};

enum class Shell : std::uint8_t { bash, zsh, fish };

// The values in an option's type: "error|warning|note|never", as our types list them, or CLI11's
// "TEXT:{a,b}". Empty if the type lists none.
std::vector<std::string> values_of(std::string_view type) {
  const std::size_t brace = type.find(":{");
  const bool braced = brace != std::string_view::npos && type.back() == '}';
  if (braced) type = type.substr(brace + 2, type.size() - brace - 3);
  const char between = braced ? ',' : '|';
  if (!braced && type.find(between) == std::string_view::npos) return {};
  std::vector<std::string> out(1);
  for (const char c : type) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
    if (c == between) {
      out.emplace_back();
    } else if (plain) {
      out.back() += c;
    } else {
      return {};
    }
  }
  return out;
}

// Descriptions are wrapped for the help text; completion shows the first line.
std::string first_line(const std::string& text) {
  std::string out = text.substr(0, text.find('\n'));
  while (!out.empty() && (out.back() == ',' || out.back() == ';')) out.pop_back();
  return out;
}

CompletedCommand::Option option_of(const CLI::Option& option) {
  CompletedCommand::Option out;
  for (const std::string& name : option.get_lnames()) out.names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) out.names.push_back("-" + name);
  out.description = first_line(option.get_description());
  out.takes_value = option.get_items_expected_max() > 0;
  out.values = values_of(option.get_type_name());
  return out;
}

// Adds a command's options, also those of its option groups, which CLI11 stores as unnamed
// commands.
void add_options(const CLI::App& app, CompletedCommand& out) {
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional() && !option->get_group().empty())
      out.options.push_back(option_of(*option));
  }
  for (const CLI::App* group :
       app.get_subcommands([](const CLI::App* sub) { return sub->get_name().empty(); }))
    add_options(*group, out);
}

void add_command(const CLI::App& app, const std::vector<std::string>& path,
                 std::vector<CompletedCommand>& out) {
  CompletedCommand command{path, first_line(app.get_description()), {}, {}};
  add_options(app, command);
  const auto own = app.get_subcommands(
      [](const CLI::App* sub) { return !sub->get_name().empty() && !sub->get_group().empty(); });
  for (const CLI::App* sub : own) command.commands.push_back(sub->get_name());
  out.push_back(std::move(command));
  for (const CLI::App* sub : own) {
    std::vector<std::string> longer = path;
    longer.push_back(sub->get_name());
    add_command(*sub, longer, out);
  }
}

std::string joined_words(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + word;
  return out;
}

// A command's path as the scripts below store it: " simulate trace", a blank before each word.
std::string path_of(const CompletedCommand& command) {
  std::string out;
  for (const std::string& word : command.path) out += " " + word;
  return out;
}

// Quotes text in single quotes. Inside them bash and zsh know no escapes; fish knows \' and \\.
std::string quoted(const std::string& text, bool in_fish = false) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += in_fish ? "\\'" : "'\\''";
    } else if (c == '\\' && in_fish) {
      out += "\\\\";
    } else {
      out += c;
    }
  }
  return out + "'";
}

const CompletedCommand& command_at(const std::vector<CompletedCommand>& all,
                                   const std::vector<std::string>& path) {
  return *std::find_if(all.begin(), all.end(),
                       [&](const CompletedCommand& c) { return c.path == path; });
}

// Patterns of a `case` that recognise the commands: "' run'|' simulate trace'".
std::string patterns(const std::vector<CompletedCommand>& commands) {
  std::string out;
  for (const CompletedCommand& command : commands)
    if (!command.path.empty()) out += (out.empty() ? "" : "|") + quoted(path_of(command));
  return out;
}

// The arms of a `case` over "PATH PREVIOUS-WORD" for options that take a value: `offer` gives the
// command that completes it, or files if it lists no values.
template <class Offer>
std::string value_cases(const std::vector<CompletedCommand>& commands, Offer offer) {
  std::string out;
  for (const CompletedCommand& command : commands) {
    for (const CompletedCommand::Option& option : command.options) {
      if (!option.takes_value) continue;
      std::string names;
      for (const std::string& name : option.names)
        names += (names.empty() ? "" : "|") + quoted(path_of(command) + " " + name);
      out += "    " + names + ") " + offer(option.values) + "; return ;;\n";
    }
  }
  return out;
}

std::string bash_script(const std::string& name, const std::vector<CompletedCommand>& commands) {
  std::string out = "# bash completion for " + name + "; made by `" + name +
                    " completion bash`\n"
                    "_" +
                    name +
                    "() {\n"
                    "  local current=${COMP_WORDS[COMP_CWORD]} path= commands= options= i\n"
                    "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
                    "    case \"$path ${COMP_WORDS[i]}\" in\n"
                    "      " +
                    patterns(commands) +
                    ") path+=\" ${COMP_WORDS[i]}\" ;;\n"
                    "    esac\n"
                    "  done\n"
                    "  COMPREPLY=()\n"
                    "  case \"$path ${COMP_WORDS[COMP_CWORD-1]}\" in\n";
  out += value_cases(commands, [](const std::vector<std::string>& values) {
    return values.empty()
               ? std::string(":")
               : "COMPREPLY=($(compgen -W " + quoted(joined_words(values)) + " -- \"$current\"))";
  });
  out += "  esac\n  case \"$path\" in\n";
  for (const CompletedCommand& command : commands) {
    std::vector<std::string> options;
    for (const CompletedCommand::Option& option : command.options)
      options.insert(options.end(), option.names.begin(), option.names.end());
    out += "    " + quoted(path_of(command)) +
           ") commands=" + quoted(joined_words(command.commands)) +
           " options=" + quoted(joined_words(options)) + " ;;\n";
  }
  return out +
         "  esac\n"
         "  [[ $current == -* ]] && commands=$options\n"
         "  [[ -z $commands ]] || COMPREPLY=($(compgen -W \"$commands\" -- \"$current\"))\n"
         "}\n"
         "complete -o default -F _" +
         name + " " + name + "\n";
}

// "name:description", as _describe takes it.
std::string described(const std::string& name, const std::string& description) {
  return quoted(name + ":" + description);
}

std::string zsh_script(const std::string& name, const std::vector<CompletedCommand>& commands) {
  std::string out = "#compdef " + name + "\n# made by `" + name + " completion zsh`\n_" + name +
                    "() {\n"
                    "  local where= word\n"
                    "  local -a commands options\n"
                    "  for word in ${words[2,CURRENT-1]}; do\n"
                    "    case \"$where $word\" in\n"
                    "      " +
                    patterns(commands) +
                    ") where+=\" $word\" ;;\n"
                    "    esac\n"
                    "  done\n"
                    "  case \"$where ${words[CURRENT-1]}\" in\n";
  out += value_cases(commands, [](const std::vector<std::string>& values) {
    return values.empty() ? std::string("_files") : "compadd -- " + joined_words(values);
  });
  out += "  esac\n  case \"$where\" in\n";
  for (const CompletedCommand& command : commands) {
    out += "    " + quoted(path_of(command)) + ")\n";
    if (!command.commands.empty()) {
      out += "      commands=(";
      for (const std::string& own : command.commands) {
        std::vector<std::string> path = command.path;
        path.push_back(own);
        out += "\n        " + described(own, command_at(commands, path).description);
      }
      out += ")\n";
    }
    out += "      options=(";
    for (const CompletedCommand::Option& option : command.options)
      for (const std::string& each : option.names)
        out += "\n        " + described(each, option.description);
    out += ") ;;\n";
  }
  return out +
         "  esac\n"
         "  if [[ $PREFIX == -* ]]; then\n"
         "    _describe option options\n"
         "  elif (( $#commands )); then\n"
         "    _describe command commands\n"
         "  else\n"
         "    _files\n"
         "  fi\n"
         "}\n"
         "if [[ $funcstack[1] == _" +
         name +
         " ]]; then\n"
         "  _" +
         name +
         " \"$@\"\n"
         "else\n"
         "  compdef _" +
         name + " " + name +
         "\n"
         "fi\n";
}

// The condition that the words so far name exactly this command.
std::string fish_condition(const CompletedCommand& command) {
  if (command.path.empty()) return "__fish_use_subcommand";
  std::string out;
  for (const std::string& word : command.path)
    out += (out.empty() ? "" : "; and ") + ("__fish_seen_subcommand_from " + word);
  if (!command.commands.empty())
    out += "; and not __fish_seen_subcommand_from " + joined_words(command.commands);
  return out;
}

std::string fish_script(const std::string& name, const std::vector<CompletedCommand>& commands) {
  std::string out = "# fish completion for " + name + "; made by `" + name + " completion fish`\n";
  for (const CompletedCommand& command : commands) {
    const std::string begin =
        "complete -c " + name + " -n " + quoted(fish_condition(command), true);
    for (const std::string& own : command.commands) {
      std::vector<std::string> path = command.path;
      path.push_back(own);
      out += begin + " -f -a " + own + " -d " +
             quoted(command_at(commands, path).description, true) + "\n";
    }
    for (const CompletedCommand::Option& option : command.options) {
      out += begin;
      for (const std::string& each : option.names)
        out += each.starts_with("--") ? " -l " + each.substr(2) : " -s " + each.substr(1);
      if (option.takes_value) out += " -r";
      if (!option.values.empty()) out += " -f -a " + quoted(joined_words(option.values), true);
      out += " -d " + quoted(option.description, true) + "\n";
    }
  }
  return out;
}

// The program and all its commands, in the order of their definition. Hidden ones are left out.
std::vector<CompletedCommand> completed_commands(const CLI::App& app) {
  std::vector<CompletedCommand> out;
  add_command(app, {}, out);
  return out;
}

// The script for a program called `name`.
std::string completion_script(Shell shell, const std::string& name,
                              const std::vector<CompletedCommand>& commands) {
  switch (shell) {
    case Shell::bash:
      return bash_script(name, commands);
    case Shell::zsh:
      return zsh_script(name, commands);
    case Shell::fish:
      return fish_script(name, commands);
  }
  return {};
}

reports::ExitStatus print_script(const CLI::App& app, const std::string& shell) {
  const Shell kind = shell == "bash" ? Shell::bash : shell == "zsh" ? Shell::zsh : Shell::fish;
  std::cout << completion_script(kind, app.get_name(), completed_commands(app)) << std::flush;
  if (std::cout) return reports::ExitStatus::clean;
  return reports::fail({"cannot write to standard output", {}, "check where it is redirected to"},
                       reports::ExitStatus::own_failure);
}

}  // namespace

void add_completion(CLI::App& app, reports::ExitStatus& status) {
  CLI::App* command = app.add_subcommand("completion", "Print a shell completion script");
  const auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "bash, zsh or fish")
      ->type_name("")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}).description(""));
  command->footer(kCompletionFooter);
  command->callback([&app, shell, &status] { status = print_script(app, *shell); });
}

}  // namespace lockstep::cli
