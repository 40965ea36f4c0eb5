// lockstep explain [RULE]: the rules, and the page of each.
#include <algorithm>
#include <iostream>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/terminal.h"
#include "base/text.h"
#include "cli/commands.h"
#include "reports/exit_status.h"
#include "verify/rules/page.h"
#include "verify/rules/rules.h"

namespace lockstep::cli {
namespace {

// The columns of prose: longer lines are hard to read.
std::size_t columns() { return std::min<std::size_t>(stdout_columns(), 100); }

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
      return "no schedule lets these ranks continue, or the recorded values differ";
    case verify::Certainty::observed:
      return "seen in this run";
    case verify::Certainty::possible:
      return "some legal schedule would go wrong";
  }
  return "";
}

reports::ExitStatus print_rules() {
  const Paint paint{stdout_wants_color()};
  std::string_view family;
  for (const verify::Rule& rule : verify::all_rules()) {
    // The table is sorted by family: each heading comes once.
    if (rule.family != family) {
      std::cout << (family.empty() ? "" : "\n") << paint.bold(rule.family) << "\n";
      family = rule.family;
    }
    std::cout << fmt::format("  {:<21}{:<9}{}\n", rule.name, verify::to_string(rule.severity),
                             wrap(verify::rule_page(rule.id).summary, columns(), 32, 32));
  }
  std::cout << fmt::format(
      "\n{}\n", wrap("`lockstep explain RULE` says what a rule means and what to do.", columns()));
  return reports::ExitStatus::clean;
}

// For other programs: an array with an object per rule.
reports::ExitStatus print_as_json(std::span<const verify::Rule> rules) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const verify::Rule& rule : rules) {
    const verify::RulePage& page = verify::rule_page(rule.id);
    out.push_back({{"id", rule.name},
                   {"family", rule.family},
                   {"severity", verify::to_string(rule.severity)},
                   {"certainties", certainties_of(rule)},
                   {"summary", page.summary},
                   {"explanation", page.meaning},
                   {"decision", page.decision},
                   {"limits", page.limits},
                   {"fix", page.fix},
                   {"how_to_fix", page.how_to_fix},
                   {"example", page.example}});
  }
  std::cout << out.dump(2) << "\n";
  return reports::ExitStatus::clean;
}

// "  proven    no schedule …", a line or more for each that findings of the rule may have.
std::string certainty_lines(const verify::Rule& rule) {
  std::string out;
  for (const verify::Certainty c :
       {verify::Certainty::proven, verify::Certainty::observed, verify::Certainty::possible})
    if (rule.certainties.has(c))
      out += fmt::format("  {:<10}{}\n", verify::to_string(c), wrap(meaning(c), columns(), 12, 12));
  return out;
}

// A section of a page: paragraphs and lists wrapped, fenced blocks as they are, without the fences.
std::string section(std::string_view text) {
  std::istringstream lines{std::string(text)};
  std::string out;
  bool fenced = false;
  for (std::string line; std::getline(lines, line);) {
    // Examples are shown as they are, for traces are not to be wrapped.
    if (verify::is_fence(line))
      fenced = !fenced;
    else if (fenced || line.empty())
      out += line + "\n";
    else
      out += fmt::format("  {}\n", wrap(line, columns() - 2, line.starts_with("- ") ? 4 : 2));
  }
  return out;
}

reports::ExitStatus explain(const verify::Rule& rule) {
  const verify::RulePage& page = verify::rule_page(rule.id);
  const Paint paint{stdout_wants_color()};
  std::cout << paint.bold(rule.name) << " (" << rule.family << ", usually "
            << verify::to_string(rule.severity) << ")\n"
            << "  " << wrap(page.summary, columns(), 2, 2) << "\n\n"
            << paint.bold("What it means") << "\n"
            << section(page.meaning) << "\n"
            << paint.bold("How certain a finding is") << "\n"
            << certainty_lines(rule) << "\n"
            << paint.bold("How it is decided") << "\n"
            << section(page.decision) << "\n"
            << paint.bold("What it cannot see") << "\n"
            << section(page.limits) << "\n"
            << paint.bold("How to fix it") << "\n"
            << section(page.how_to_fix) << "\n"
            << paint.bold("Example") << "\n"
            << section(page.example);
  return reports::ExitStatus::clean;
}

struct ExplainOptions {
  std::string rule;  // empty: all
  bool as_json = false;
};

reports::ExitStatus run(const ExplainOptions& options) {
  if (options.rule.empty())
    return options.as_json ? print_as_json(verify::all_rules()) : print_rules();
  const Result<verify::RuleId> id = verify::rule_named(options.rule);
  if (!id) return reports::fail(id.error());
  const verify::Rule& rule = verify::rule(*id);
  return options.as_json ? print_as_json({&rule, 1}) : explain(rule);
}

}  // namespace

void add_explain(CLI::App& app, reports::ExitStatus& status) {
  CLI::App* command =
      app.add_subcommand("explain", "Explain a rule of `verify` and `run`, or list all");
  const auto options = std::make_shared<ExplainOptions>();
  command->add_option("RULE", options->rule, "A rule's id, as reports name it (default: list all)")
      ->type_name("");
  command->add_flag("--json", options->as_json, "Print the rule, or all, as JSON");
  command->footer(
      "Examples:\n  lockstep explain\n  lockstep explain modality-divergence\n"
      "  lockstep explain --json");
  command->callback([options, &status] { status = run(*options); });
}

}  // namespace lockstep::cli
