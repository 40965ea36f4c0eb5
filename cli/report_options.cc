
#include "cli/report_options.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/files/read_file.h"
#include "base/files/write_file.h"
#include "base/text.h"
#include "reports/ci/github_report.h"
#include "reports/ci/gitlab_report.h"
#include "reports/ci/junit_report.h"
#include "reports/ci/sarif_report.h"
#include "reports/filter/baseline.h"
#include "reports/filter/suppressions.h"
#include "reports/findings/csv_report.h"
#include "reports/findings/dot_report.h"
#include "reports/findings/html_report.h"
#include "reports/findings/json_report.h"
#include "reports/findings/markdown_report.h"
#include "reports/findings/text_report.h"
#include "reports/findings/timeline_report.h"
#include "verify/rules.h"

namespace lockstep {
namespace {

struct Judged {
  const FilteredReport& report;
  const Run& run;
  std::optional<CallSemantics> semantics;
  bool color = false;
};

// CI services show places relative to what they checked out, which is where commands run.
std::string source_root() {
  std::error_code none;
  return std::filesystem::current_path(none).string();
}

struct ReportForm {
  std::string_view kind;
  std::string (*render)(const Judged&);
};

constexpr std::array kForms = {
    ReportForm{"text",
               [](const Judged& j) { return text_report(j.report, j.run, {.color = j.color}); }},
    ReportForm{"json", [](const Judged& j) { return json_report(j.report); }},
    ReportForm{"html", [](const Judged& j) { return html_report(j.report, j.run, j.semantics); }},
    ReportForm{"markdown", [](const Judged& j) { return markdown_report(j.report, j.run); }},
    ReportForm{"csv", [](const Judged& j) { return csv_report(j.report); }},
    ReportForm{"timeline",
               [](const Judged& j) {
                 return timeline_report(j.report, j.run, {.semantics = j.semantics});
               }},
    ReportForm{"dot", [](const Judged& j) { return dot_report(j.report, j.run, j.semantics); }},
    ReportForm{"sarif", [](const Judged& j) { return sarif_report(j.report, source_root()); }},
    ReportForm{"junit", [](const Judged& j) { return junit_report(j.report); }},
    ReportForm{"github", [](const Judged& j) { return github_report(j.report, source_root()); }},
    ReportForm{"gitlab", [](const Judged& j) { return gitlab_report(j.report, source_root()); }},
};

std::string rendered(std::string_view kind, const Judged& judged) {
  const auto* form = std::find_if(kForms.begin(), kForms.end(),
                                  [&](const ReportForm& one) { return one.kind == kind; });
  LOCKSTEP_CHECK(form != kForms.end(), "parse_output_targets() lets no other kind through");
  return form->render(judged);
}

// What --fail-on takes, and the least severity that then gives exit status 1.
std::optional<Severity> threshold(std::string_view fail_on) {
  if (fail_on == "error") return Severity::error;
  if (fail_on == "warning") return Severity::warning;
  if (fail_on == "note") return Severity::note;
  return std::nullopt;
}

}  // namespace

void add_output_option(CLI::App& command, std::vector<std::string>& outputs) {
  command
      .add_option("-o,--output", outputs,
                  "Write the report as text, json, html,\n"
                  "markdown, csv, timeline, dot, sarif, junit,\n"
                  "github or gitlab, e.g. html=r.html; the path\n"
                  "\"-\" is standard output")
      ->type_name("KIND=PATH")
      ->allow_extra_args(false);
}

void add_report_options(CLI::App& command, ReportOptions& options) {
  add_output_option(command, options.outputs);
  command.add_option("--fail-on", options.fail_on, "Exit with 1 for findings so severe or worse")
      ->type_name("error|warning|note|never")
      ->check(CLI::IsMember({"error", "warning", "note", "never"}).description(""))
      ->capture_default_str();
  command.add_flag("-q,--quiet", options.quiet, "Do not print the text report");
  add_filter_options(command, options.filter);
}

OutputForms report_forms() {
  OutputForms forms{"report", {}};
  for (const ReportForm& form : kForms) forms.kinds.emplace_back(form.kind);
  return forms;
}

Status check_outputs(const ReportOptions& options) {
  if (const auto targets = parse_output_targets(options.outputs, report_forms()); !targets)
    return targets.error();
  return Status::ok();
}

bool takes_stdout(const ReportOptions& options) {
  const auto targets = parse_output_targets(options.outputs, report_forms());
  return targets && std::any_of(targets->begin(), targets->end(),
                                [](const OutputTarget& target) { return target.to_stdout(); });
}

Status write_reports(const FilteredReport& report, const Run& run, const ReportOptions& options) {
  const auto targets = parse_output_targets(options.outputs, report_forms());
  if (!targets) return targets.error();
  const auto content = [&](const std::string& kind, bool to_stdout) {
    return rendered(kind, {report, run, options.semantics, to_stdout && stdout_wants_color()});
  };
  if (Status written = write_targets(*targets, options.quiet, content); !written) return written;
  return write_baseline(report, options.filter);
}

ExitStatus exit_status(const Report& report, const std::string& fail_on) {
  const std::optional<Severity> least = threshold(fail_on);
  const bool fails = least && std::any_of(report.findings.begin(), report.findings.end(),
                                          [&](const Finding& f) { return f.severity >= *least; });
  if (fails) return ExitStatus::findings;
  return report.verdict == Verdict::inconclusive ? ExitStatus::inconclusive : ExitStatus::clean;
}

ExitStatus fail(const Error& error, ExitStatus status) {
  std::cerr << "lockstep: " << error.str() << "\n";
  return status;
}

bool wants_color(bool is_terminal, const char* no_color, const char* term) {
  const bool refused = no_color != nullptr && *no_color != '\0';
  const bool dumb = term == nullptr || std::string_view(term) == "dumb";
  return is_terminal && !refused && !dumb;
}

bool stdout_wants_color() {
  return wants_color(::isatty(STDOUT_FILENO) == 1, std::getenv("NO_COLOR"), std::getenv("TERM"));
}

namespace {

constexpr std::size_t kMaxBaseline = 64 << 20;  // a few hundred thousand findings

Result<std::set<RuleId>> rules_named(const std::vector<std::string>& names,
                                     const std::string& option) {
  std::set<RuleId> out;
  for (const std::string& name : names) {
    const Result<RuleId> rule = rule_named(name);
    if (!rule) return Error{option + ": " + rule.error().message, {}, rule.error().fix};
    out.insert(*rule);
  }
  return out;
}

Result<std::string> read_text(const std::string& path, std::size_t most, const std::string& fix) {
  Result<std::string> text = read_file(path, most);
  if (!text) return Error{text.error().message, text.error().place, fix};
  return text;
}

}  // namespace

void add_filter_options(CLI::App& command, FilterOptions& options) {
  command.add_option("--only", options.only, "Count findings of this rule only; a,b: of both")
      ->type_name("RULE")
      ->delimiter(',')
      ->allow_extra_args(false);
  command.add_option("--disable", options.disable, "Leave out findings of this rule; a,b: of both")
      ->type_name("RULE")
      ->delimiter(',')
      ->allow_extra_args(false);
  command
      .add_option("--suppressions", options.suppressions,
                  "Set accepted findings aside: a YAML list\n(docs/reports.md)")
      ->type_name("FILE");
  command
      .add_option("--baseline", options.baseline,
                  "Set findings aside that are in this file;\nonly new ones count")
      ->type_name("FILE");
  command
      .add_option("--write-baseline", options.write_baseline,
                  "Write what was found as a new baseline")
      ->type_name("FILE");
}

Result<Filter> load_filter(const FilterOptions& options) {
  Filter out;
  Result<std::set<RuleId>> only = rules_named(options.only, "--only");
  if (!only) return only.error();
  out.only = std::move(*only);
  Result<std::set<RuleId>> disable = rules_named(options.disable, "--disable");
  if (!disable) return disable.error();
  out.disable = std::move(*disable);
  for (const RuleId id : out.only)
    if (out.disable.contains(id))
      return Error{"the rule " + std::string(rule(id).name) + " is in --only and in --disable",
                   {},
                   "leave it out of one of them"};
  if (!options.suppressions.empty()) {
    const Result<std::string> text =
        read_text(options.suppressions, 1 << 20,
                  "--suppressions takes a YAML file; docs/reports.md describes it");
    if (!text) return text.error();
    Result<std::vector<Suppression>> entries = parse_suppressions(*text, options.suppressions);
    if (!entries) return entries.error();
    out.suppressions = std::move(*entries);
  }
  if (!options.baseline.empty()) {
    const Result<std::string> text =
        read_text(options.baseline, kMaxBaseline,
                  "write it once with --write-baseline " + printable(options.baseline));
    if (!text) return text.error();
    auto known = parse_baseline(*text, options.baseline);
    if (!known) return known.error();
    out.baseline = std::move(*known);
  }
  return out;
}

Status write_baseline(const FilteredReport& filtered, const FilterOptions& options) {
  if (options.write_baseline.empty()) return Status::ok();
  return write_file(options.write_baseline, baseline_text(filtered));
}

std::chrono::sys_days today_utc() {
  return std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now());
}

}  // namespace lockstep
