// lockstep rules, lockstep explain RULE: the rule table.
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/tables.h"
#include "base/terminal.h"
#include "base/text.h"
#include "cli/commands.h"
#include "reports/exit_status.h"
#include "verify/rule_examples.h"
#include "verify/rules.h"

namespace lockstep::cli {
namespace {

constexpr std::size_t kWidth = 80;

std::vector<std::string> certainties_of(const verify::Rule& rule) {
  std::vector<std::string> out;
  for (const verify::Certainty c :
       {verify::Certainty::proven, verify::Certainty::observed, verify::Certainty::possible})
    if (rule.certainties.has(c)) out.emplace_back(verify::to_string(c));
  return out;
}

// What each degree says, as reports mean it.
std::string_view meaning(verify::Certainty certainty) {
  switch (certainty) {
    case verify::Certainty::proven:
      return "no schedule lets these ranks go on, or the recorded values differ";
    case verify::Certainty::observed:
      return "seen in this run";
    case verify::Certainty::possible:
      return "some legal schedule would go wrong";
  }
  return "";
}

// `text` wrapped into lines that start with `indent` blanks.
std::string block(std::string_view text, std::size_t indent) {
  std::string out(indent, ' ');
  for (const char c : wrap(text, kWidth - indent)) {
    out += c;
    if (c == '\n') out.append(indent, ' ');
  }
  return out + "\n";
}

reports::ExitStatus print_rules() {
  const Paint paint{stdout_wants_color()};
  std::string_view family;
  for (const verify::Rule& rule : verify::all_rules()) {
    if (rule.family != family) {
      std::cout << (family.empty() ? "" : "\n") << paint.bold(rule.family) << "\n";
      family = rule.family;
    }
    std::cout << "  " << pad_right(rule.name, 21) << pad_right(verify::to_string(rule.severity), 9)
              << block(rule.summary, 32).substr(32);
  }
  std::cout << "\n`lockstep explain RULE` says what a rule means and what to do.\n";
  return reports::ExitStatus::clean;
}

// For other programs: an array with an object per rule.
reports::ExitStatus print_rules_as_json() {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const verify::Rule& rule : verify::all_rules())
    out.push_back({{"id", rule.name},
                   {"family", rule.family},
                   {"severity", verify::to_string(rule.severity)},
                   {"certainties", certainties_of(rule)},
                   {"summary", rule.summary},
                   {"explanation", rule.explanation},
                   {"fix", rule.fix},
                   {"example", verify::rule_example(rule.id)}});
  std::cout << out.dump(2) << "\n";
  return reports::ExitStatus::clean;
}

// "  proven    no schedule …", a line or more for each that findings of the rule may have.
std::string certainty_lines(const verify::Rule& rule) {
  std::string out;
  for (const verify::Certainty c :
       {verify::Certainty::proven, verify::Certainty::observed, verify::Certainty::possible})
    if (rule.certainties.has(c))
      out += "  " + pad_right(verify::to_string(c), 10) + block(meaning(c), 12).substr(12);
  return out;
}

reports::ExitStatus explain(const std::string& name) {
  const Result<verify::RuleId> id = verify::rule_named(name);
  if (!id) return reports::fail(id.error());
  const verify::Rule& explained = verify::rule(*id);
  const Paint paint{stdout_wants_color()};
  std::cout << paint.bold(explained.name) << " (" << explained.family << ", usually "
            << verify::to_string(explained.severity) << ")\n"
            << block(explained.summary, 2) << "\n"
            << paint.bold("What it means") << "\n"
            << block(explained.explanation, 2) << "\n"
            << paint.bold("How certain a finding is") << "\n"
            << certainty_lines(explained) << "\n"
            << paint.bold("What to do") << "\n"
            << block(explained.fix, 2) << "\n"
            << paint.bold("Example") << "\n"
            << verify::rule_example(*id);
  return reports::ExitStatus::clean;
}

}  // namespace

void add_explain(CLI::App& app, reports::ExitStatus& status) {
  CLI::App* rules = app.add_subcommand("rules", "List the rules that `verify` and `run` judge by");
  const auto as_json = std::make_shared<bool>(false);
  rules->add_flag("--json", *as_json, "Print them as JSON, for other programs");
  rules->footer(
      "Examples:\n  lockstep rules\n  lockstep rules --json\n"
      "  lockstep explain modality-divergence");
  rules->callback(
      [as_json, &status] { status = *as_json ? print_rules_as_json() : print_rules(); });

  CLI::App* command = app.add_subcommand("explain", "Explain a rule: meaning, remedy, example");
  const auto name = std::make_shared<std::string>();
  command->add_option("RULE", *name, "A rule's id, as reports name it")->type_name("")->required();
  command->footer(
      "Examples:\n  lockstep explain modality-divergence\n  lockstep explain host-stall");
  command->callback([name, &status] { status = explain(*name); });
}

}  // namespace lockstep::cli
