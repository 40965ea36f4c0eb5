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

#include "base/text.h"
#include "base/write_file.h"
#include "reports/github_report.h"
#include "reports/gitlab_report.h"
#include "reports/json_report.h"
#include "reports/junit_report.h"
#include "reports/markdown_report.h"
#include "reports/sarif_report.h"
#include "reports/text_report.h"

namespace lockstep {
namespace {

using Kind = OutputTarget::Kind;

struct KindName {
  std::string_view name;
  Kind kind;
};
constexpr std::array kKinds = {
    KindName{"text", Kind::text},         KindName{"json", Kind::json},
    KindName{"sarif", Kind::sarif},       KindName{"junit", Kind::junit},
    KindName{"github", Kind::github},     KindName{"gitlab", Kind::gitlab},
    KindName{"markdown", Kind::markdown},
};

std::optional<Kind> kind_named(std::string_view name) {
  for (const KindName& one : kKinds)
    if (one.name == name) return one.kind;
  return std::nullopt;
}

std::vector<std::string> kind_names() {
  std::vector<std::string> out;
  for (const KindName& one : kKinds) out.emplace_back(one.name);
  return out;
}

// What --fail-on takes, and the least severity that then gives exit status 1.
std::optional<Severity> threshold(std::string_view fail_on) {
  if (fail_on == "error") return Severity::error;
  if (fail_on == "warning") return Severity::warning;
  if (fail_on == "note") return Severity::note;
  return std::nullopt;
}

Status write_stdout(const std::string& text) {
  std::cout << text << std::flush;
  if (std::cout) return Status::ok();
  return Error{"cannot write to standard output", {}, "check where it is redirected to"};
}

// CI services show places relative to what they checked out, which is where commands run.
std::string source_root() {
  std::error_code none;
  return std::filesystem::current_path(none).string();
}

std::string rendered(Kind kind, const FilteredReport& report, const Run& run, bool color) {
  switch (kind) {
    case Kind::text:
      return text_report(report, run, {.color = color});
    case Kind::json:
      return json_report(report);
    case Kind::sarif:
      return sarif_report(report, source_root());
    case Kind::junit:
      return junit_report(report);
    case Kind::github:
      return github_report(report, source_root());
    case Kind::gitlab:
      return gitlab_report(report, source_root());
    case Kind::markdown:
      return markdown_report(report, run);
  }
  return {};
}

Result<std::vector<OutputTarget>> parse_outputs(const ReportOptions& options) {
  std::vector<OutputTarget> targets;
  for (const std::string& output : options.outputs) {
    Result<OutputTarget> target = parse_output(output);
    if (!target) return target.error();
    targets.push_back(*target);
  }
  const auto to_stdout = std::count_if(targets.begin(), targets.end(),
                                       [](const OutputTarget& t) { return t.path == "-"; });
  if (to_stdout > 1)
    return Error{"two --output options write to standard output", {}, "send one of them to a file"};
  return targets;
}

}  // namespace

void add_report_options(CLI::App& command, ReportOptions& options) {
  command
      .add_option("-o,--output", options.outputs,
                  "Write the report as text, json, sarif, junit,\n"
                  "github, gitlab or markdown, e.g. json=r.json;\n"
                  "the path \"-\" is standard output")
      ->type_name("KIND=PATH")
      ->allow_extra_args(false);
  command.add_option("--fail-on", options.fail_on, "Exit with 1 for findings so severe or worse")
      ->type_name("error|warning|note|never")
      ->check(CLI::IsMember({"error", "warning", "note", "never"}).description(""))
      ->capture_default_str();
  command.add_flag("-q,--quiet", options.quiet, "Do not print the text report");
  add_filter_options(command, options.filter);
}

Result<OutputTarget> parse_output(const std::string& text) {
  const std::size_t equals = text.find('=');
  const std::string kind = text.substr(0, equals);
  const std::string shown = printable(text);
  if (equals == std::string::npos || equals + 1 == text.size())
    return Error{"--output " + shown + ": expected KIND=PATH", {}, "write json=report.json"};
  const std::optional<Kind> known = kind_named(kind);
  if (!known) {
    const std::vector<std::string> names = kind_names();
    const std::string near = kind.size() < 100 ? nearest(kind, names) : "";
    return Error{"--output " + shown + ": no such kind of report",
                 {},
                 (near.empty() ? "" : "did you mean " + near + "? ") + "kinds: " + join_and(names)};
  }
  return OutputTarget{*known, text.substr(equals + 1)};
}

Status check_outputs(const ReportOptions& options) {
  if (Result<std::vector<OutputTarget>> targets = parse_outputs(options); !targets)
    return targets.error();
  return Status::ok();
}

Status write_reports(const FilteredReport& report, const Run& run, const ReportOptions& options) {
  const Result<std::vector<OutputTarget>> targets = parse_outputs(options);
  if (!targets) return targets.error();
  const bool taken = std::any_of(targets->begin(), targets->end(),
                                 [](const OutputTarget& t) { return t.path == "-"; });
  if (!taken && !options.quiet) {
    const bool color = stdout_wants_color();
    if (Status s = write_stdout(rendered(Kind::text, report, run, color)); !s) return s;
  }
  for (const OutputTarget& target : *targets) {
    const bool to_stdout = target.path == "-";
    const std::string text = rendered(target.kind, report, run, to_stdout && stdout_wants_color());
    if (Status s = to_stdout ? write_stdout(text) : write_file(target.path, text); !s) return s;
  }
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
