#include "cli/output.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string_view>
#include <system_error>

#include "base/check.h"
#include "reports/ci/github_report.h"
#include "reports/ci/gitlab_report.h"
#include "reports/ci/junit_report.h"
#include "reports/ci/sarif_report.h"
#include "reports/findings/csv_report.h"
#include "reports/findings/dot_report.h"
#include "reports/findings/html_report.h"
#include "reports/findings/json_report.h"
#include "reports/findings/markdown_report.h"
#include "reports/findings/text_report.h"
#include "reports/findings/timeline_report.h"

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

}  // namespace lockstep
