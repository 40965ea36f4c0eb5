#include "cli/output.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string_view>

#include "base/text.h"
#include "cli/write_file.h"
#include "reports/json_report.h"
#include "reports/text_report.h"

namespace lockstep {
namespace {

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

std::string rendered(OutputTarget::Kind kind, const Report& report, const Run& run, bool color) {
  if (kind == OutputTarget::Kind::json) return json_report(report);
  return text_report(report, run, {.color = color});
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
                  "Write the report as text=PATH or json=PATH;\nthe path \"-\" is standard output")
      ->type_name("KIND=PATH")
      ->allow_extra_args(false);
  command.add_option("--fail-on", options.fail_on, "Exit with 1 for findings so severe or worse")
      ->type_name("error|warning|note|never")
      ->check(CLI::IsMember({"error", "warning", "note", "never"}).description(""))
      ->capture_default_str();
  command.add_flag("-q,--quiet", options.quiet, "Do not print the text report");
}

Result<OutputTarget> parse_output(const std::string& text) {
  const std::size_t equals = text.find('=');
  const std::string kind = text.substr(0, equals);
  const std::string shown = printable(text);
  if (equals == std::string::npos || equals + 1 == text.size())
    return Error{"--output " + shown + ": expected KIND=PATH", {}, "write json=report.json"};
  if (kind != "text" && kind != "json")
    return Error{"--output " + shown + ": no such kind of report", {}, "kinds: text, json"};
  return OutputTarget{kind == "json" ? OutputTarget::Kind::json : OutputTarget::Kind::text,
                      text.substr(equals + 1)};
}

Status check_outputs(const ReportOptions& options) {
  if (Result<std::vector<OutputTarget>> targets = parse_outputs(options); !targets)
    return targets.error();
  return Status::ok();
}

Status write_reports(const Report& report, const Run& run, const ReportOptions& options) {
  const Result<std::vector<OutputTarget>> targets = parse_outputs(options);
  if (!targets) return targets.error();
  const bool taken = std::any_of(targets->begin(), targets->end(),
                                 [](const OutputTarget& t) { return t.path == "-"; });
  if (!taken && !options.quiet) {
    const bool color = stdout_wants_color();
    if (Status s = write_stdout(rendered(OutputTarget::Kind::text, report, run, color)); !s)
      return s;
  }
  for (const OutputTarget& target : *targets) {
    const bool to_stdout = target.path == "-";
    const std::string text = rendered(target.kind, report, run, to_stdout && stdout_wants_color());
    if (Status s = to_stdout ? write_stdout(text) : write_file(target.path, text); !s) return s;
  }
  return Status::ok();
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
