// lockstep completion SHELL: a script that completes the command line.
//
// The scripts of bash, zsh and fish only call this program: `lockstep completion --for WORD…`
// prints how the last word may continue (commands, options, or values such as rules, machines and
// formats). So all shells offer the same, and none can fall behind.
//
//   lockstep completion --for verify --fail-on wa      prints: warning
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cli/commands.h"
#include "cli/input_files.h"
#include "cli/program.h"
#include "reports/exit_status.h"
#include "reports/findings/forms.h"
#include "runtime/job/scenario.h"
#include "sim/collectives/closed_form.h"
#include "sim/pipeline/schedule.h"
#include "trace/formats/format.h"
#include "trace/signature.h"
#include "verify/rules/page.h"
#include "verify/rules/rules.h"

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

// The scripts turn the output of this program into the shell's form: each line is a word, a tab and
// its description. If nothing is printed, the shell offers files.
constexpr std::string_view kBash = R"(# bash completion for lockstep
_lockstep() {
  local IFS=$'\n'
  COMPREPLY=($("${COMP_WORDS[0]}" completion --for "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null |
    cut -f1))
  [[ ${#COMPREPLY[@]} -ne 1 || ${COMPREPLY[0]} != *= ]] || compopt -o nospace 2>/dev/null
}
complete -o default -F _lockstep lockstep
)";

constexpr std::string_view kZsh = R"(#compdef lockstep
_lockstep() {
  local -a found
  local line tab=$'\t'
  for line in "${(@f)$("${words[1]}" completion --for "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
    [[ -z $line ]] || found+=("${${line%%$tab*}//:/\\:}:${line#*$tab}")
  done
  if (( $#found )); then _describe -V lockstep found; else _files; fi
}
if [[ $funcstack[1] == _lockstep ]]; then _lockstep "$@"; else compdef _lockstep lockstep; fi
)";

constexpr std::string_view kFish = R"(# fish completion for lockstep
function __lockstep_complete
  set -l typed (commandline -opc)
  set -l program $typed[1]
  set -e typed[1]
  set -l found ($program completion --for $typed (commandline -ct) 2>/dev/null)
  if test (count $found) -gt 0
    printf '%s\n' $found
  else
    __fish_complete_path (commandline -ct)
  end
end
complete -c lockstep -f -a '(__lockstep_complete)'
)";

struct Candidate {
  std::string word;
  std::string description;
};
using Candidates = std::vector<Candidate>;

Candidates candidates(const std::vector<std::string>& words, const std::string& ending = "") {
  Candidates out;
  for (const std::string& word : words) out.push_back({word + ending, ""});
  return out;
}

Candidates rule_names() {
  Candidates out;
  for (const verify::Rule& rule : verify::all_rules())
    out.push_back({std::string(rule.name), std::string(verify::rule_page(rule.id).summary)});
  return out;
}

Candidates format_names() {
  Candidates out;
  for (const trace::Format& format : trace::all_formats())
    out.push_back({std::string(format.name), std::string(format.summary)});
  return out;
}

// The names of a definition of the scenarios' schema: "strategy_kind".
Candidates kinds_of(const char* definition) {
  const auto schema = nlohmann::json::parse(runtime::scenario_schema());
  return candidates(schema["definitions"][definition]["enum"].get<std::vector<std::string>>());
}

// One name of each of the simulator's formulas: its operation, or its algorithm. No name twice.
Candidates formula_names(std::string_view (*name)(const sim::Formula&)) {
  std::vector<std::string> out;
  for (const sim::Formula& formula : sim::formulas())
    if (std::find(out.begin(), out.end(), name(formula)) == out.end())
      out.emplace_back(name(formula));
  return candidates(out);
}

// The forms of reports that the option's description names: "text, json or html".
Candidates forms_in(const std::string& description) {
  std::vector<std::string> names(1);
  for (const char c : description) {
    if (c >= 'a' && c <= 'z')
      names.back() += c;
    else
      names.emplace_back();
  }
  std::vector<std::string> out = reports::report_forms().kinds;
  std::erase_if(out, [&](const std::string& form) {
    return std::find(names.begin(), names.end(), form) == names.end();
  });
  return candidates(out, "=");
}

// The values that an option's type lists: "error|warning|note|never", or CLI11's "TEXT:{a,b}".
std::vector<std::string> listed_values(std::string_view type) {
  const std::size_t brace = type.find(":{");
  const bool braced = brace != std::string_view::npos && type.back() == '}';
  if (braced) type = type.substr(brace + 2, type.size() - brace - 3);
  const std::vector<std::string_view> values = split(type, braced ? ',' : '|');
  if (!braced && values.size() == 1) return {};
  // "NAME|FILE" and "DIR|[KIND=]PATH" name kinds of values, and list none.
  const auto is_plain = [](std::string_view value) {
    return value.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-_") == kNpos;
  };
  if (!std::all_of(values.begin(), values.end(), is_plain)) return {};
  return {values.begin(), values.end()};
}

// The values that an option may have. Empty: any, and the shell offers files.
Candidates values_of(const CLI::Option& option) {
  const std::string name = option.get_name();
  // What the option's type does not list: names that the program knows.
  if (name == "--only" || name == "--disable") return rule_names();
  if (name == "--format") return format_names();
  if (name == "--machine" || name == "--calibration") return candidates(shipped_names("machines"));
  if (name == "--strategy") return kinds_of("strategy_kind");
  if (name == "--remedy") return kinds_of("remedy_kind");
  if (name == "--schedule") return candidates(sim::pipeline_schedule_names());
  if (name == "--op")
    return formula_names([](const sim::Formula& formula) { return trace::op_name(formula.op); });
  if (name == "--algorithm")
    return formula_names(
        [](const sim::Formula& formula) { return sim::algorithm_name(formula.algorithm); });
  if (name == "--ci") return candidates({"auto", "github", "gitlab", "junit"});
  if (name == "--output" && option.get_type_name().find("KIND") != std::string::npos)
    return forms_in(option.get_description());
  return candidates(listed_values(option.get_type_name()));
}

// The values that the command's positional arguments may have. Empty: any.
Candidates positional_values(const CLI::App& command) {
  if (command.get_name() == "explain") return rule_names();
  if (command.get_name() == "completion") return candidates({"bash", "zsh", "fish"});
  if (command.get_name() == "plan" || command.get_name() == "sweep")
    return candidates(shipped_names("plans"));
  return {};
}

// Calls `use` for the options of a command, also those of its option groups, which CLI11 stores as
// unnamed commands.
template <class Use>
void for_each_option(const CLI::App& app, const Use& use) {
  for (const CLI::Option* option : app.get_options())
    if (!option->get_positional() && !option->get_group().empty()) use(*option);
  for (const CLI::App* group :
       app.get_subcommands([](const CLI::App* sub) { return sub->get_name().empty(); }))
    for_each_option(*group, use);
}

const CLI::Option* option_that_takes_a_value(const CLI::App& app, const std::string& name) {
  const CLI::Option* out = nullptr;
  // A lone "-" is standard input.
  if (!name.starts_with("-") || name == "-") return out;
  for_each_option(app, [&](const CLI::Option& option) {
    if (option.check_name(name) && option.get_items_expected_max() > 0) out = &option;
  });
  return out;
}

// Descriptions are wrapped for the help text; completion shows the first line.
std::string first_line(const std::string& text) {
  std::string out = text.substr(0, text.find('\n'));
  while (!out.empty() && (out.back() == ',' || out.back() == ';')) out.pop_back();
  return out;
}

Candidates option_names(const CLI::App& app) {
  Candidates out;
  for_each_option(app, [&](const CLI::Option& option) {
    for (const std::string& name : option.get_lnames())
      out.push_back({fmt::format("--{}", name), first_line(option.get_description())});
    for (const std::string& name : option.get_snames())
      out.push_back({fmt::format("-{}", name), first_line(option.get_description())});
  });
  return out;
}

// The commands in a command that --help shows.
std::vector<const CLI::App*> subcommands(const CLI::App& app) {
  return app.get_subcommands(
      [](const CLI::App* sub) { return !sub->get_name().empty() && !sub->get_group().empty(); });
}

// The command that the last word belongs to, and the option whose value it is. "verify --fail-on
// wa": `verify`, --fail-on.
struct WordPosition {
  const CLI::App* command;
  const CLI::Option* option = nullptr;  // null: it is not an option's value
};

// `before`: the words before the last one.
WordPosition position_after(const CLI::App& app, const std::vector<std::string>& before) {
  WordPosition out{&app};
  for (const std::string& word : before) {
    if (out.option != nullptr) {
      if (word != "=") out.option = nullptr;  // bash splits "--only=x" into three words
      continue;
    }
    out.option = option_that_takes_a_value(*out.command, word);
    const std::vector<const CLI::App*> commands = subcommands(*out.command);
    const auto named = std::find_if(commands.begin(), commands.end(),
                                    [&](const CLI::App* sub) { return sub->get_name() == word; });
    if (named != commands.end()) out.command = *named;
  }
  return out;
}

Candidates candidates_for(const CLI::App& app, std::vector<std::string> typed) {
  std::string current = typed.empty() ? "" : typed.back();
  if (!typed.empty()) typed.pop_back();
  if (current == "=") current.clear();
  const WordPosition at = position_after(app, typed);
  if (at.option != nullptr) return values_of(*at.option);
  if (const std::size_t equals = current.find('='); current.starts_with("--") && equals != kNpos) {
    const CLI::Option* option = option_that_takes_a_value(*at.command, current.substr(0, equals));
    Candidates out = option == nullptr ? Candidates() : values_of(*option);
    // zsh and fish complete the word as it stands, "--only=" and all; bash has split it before.
    for (Candidate& value : out) value.word.insert(0, current.substr(0, equals + 1));
    return out;
  }
  if (current.starts_with("-")) return option_names(*at.command);
  Candidates out;
  for (const CLI::App* sub : subcommands(*at.command))
    out.push_back({sub->get_name(), first_line(sub->get_description())});
  // A command that has commands takes no positional argument.
  return out.empty() ? positional_values(*at.command) : out;
}

void print_script(const std::string& shell) {
  std::cout << (shell == "bash" ? kBash : shell == "zsh" ? kZsh : kFish);
}

}  // namespace

std::string completions(const CLI::App& app, const std::vector<std::string>& typed) {
  std::string current = typed.empty() ? "" : typed.back();
  if (current == "=") current.clear();
  std::string out;
  for (const Candidate& candidate : candidates_for(app, typed)) {
    if (!candidate.word.starts_with(current)) continue;
    out += candidate.word;
    if (!candidate.description.empty())
      out += fmt::format("\t{}", printable(candidate.description));
    out += "\n";
  }
  return out;
}

void add_completion(CLI::App& app, reports::ExitStatus& /*status*/) {
  CLI::App* command = app.add_subcommand("completion", "Print a shell completion script");
  const auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "bash, zsh or fish")
      ->type_name("")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}).description(""));
  command->footer(kCompletionFooter);
  command->callback([shell] { print_script(*shell); });
}

}  // namespace lockstep::cli
