#include "reports/findings/forms.h"

#include <algorithm>
#include <array>
#include <sstream>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/files/read_file.h"
#include "base/terminal.h"
#include "reports/ci/ci_reports.h"
#include "reports/findings/reports.h"
#include "reports/findings/timeline_report.h"
#include "reports/html/markup.h"
#include "reports/html/page.h"

namespace lockstep::reports {
namespace {

struct Judged {
  const FilteredReport& report;
  const trace::Run& run;
  const ReportOptions& options;
  bool to_stdout = false;

  Locator locator() const {
    return Locator(repository_of_this_process(options.path_maps), &run, scenario_line());
  }

  // A deliberate mistake of a scenario is where its fault is; else the scenario begins in line 1.
  std::optional<SourceLocation> scenario_line() const {
    if (options.scenario.empty()) return std::nullopt;
    constexpr std::size_t kLargestScenario = std::size_t{1} << 20U;
    SourceLocation out{options.scenario, 1, std::nullopt};
    const Result<std::string> text = read_file(options.scenario, kLargestScenario);
    if (!text) return out;
    std::istringstream lines(*text);
    std::uint32_t number = 1;
    for (std::string line; std::getline(lines, line); ++number)
      if (line.starts_with("fault:")) out.line = number;
    return out;
  }
};

struct ReportForm {
  std::string_view kind;
  std::string (*render)(const Judged&);
};

constexpr std::array kForms = {
    ReportForm{"text",
               [](const Judged& j) {
                 TextOptions text{.stacks = j.options.stacks};
                 if (j.to_stdout) {
                   text.width = stdout_columns();
                   text.color = stdout_wants_color();
                 }
                 return text_report(j.report, j.run, text);
               }},
    ReportForm{"json", [](const Judged& j) { return json_report(j.report, &j.run); }},
    ReportForm{"html",
               [](const Judged& j) { return html_report(j.report, j.run, j.options.semantics); }},
    ReportForm{"markdown", [](const Judged& j) { return markdown_report(j.report, j.run); }},
    ReportForm{"csv", [](const Judged& j) { return csv_report(j.report); }},
    ReportForm{"timeline",
               [](const Judged& j) {
                 return timeline_report(j.report, j.run, {.semantics = j.options.semantics});
               }},
    ReportForm{"dot",
               [](const Judged& j) { return dot_report(j.report, j.run, j.options.semantics); }},
    ReportForm{"sarif", [](const Judged& j) { return sarif_report(j.report, j.locator()); }},
    ReportForm{"junit", [](const Judged& j) { return junit_report(j.report); }},
    ReportForm{"github", [](const Judged& j) { return github_report(j.report, j.locator()); }},
    ReportForm{"gitlab", [](const Judged& j) { return gitlab_report(j.report, j.locator()); }},
};

std::string rendered(std::string_view kind, const Judged& judged) {
  const auto* form = std::find_if(kForms.begin(), kForms.end(),
                                  [&](const ReportForm& one) { return one.kind == kind; });
  LOCKSTEP_CHECK(form != kForms.end(), "parse_output_targets() lets no other kind through");
  return form->render(judged);
}

// The report with its supplement, in the forms that have room for it.
std::string supplemented(std::string_view kind, std::string report, const Supplement& more) {
  if (kind == "text")
    return more.alone ? more.text : fmt::format("{}\n{}:\n{}", report, more.title, more.text);
  if (kind == "markdown") {
    const std::string block = fmt::format("## {}\n\n```text\n{}```\n", more.title, more.text);
    return more.alone ? block : fmt::format("{}\n{}", report, block);
  }
  if (kind == "json") {
    nlohmann::ordered_json whole = nlohmann::ordered_json::parse(report);
    whole[more.key] = nlohmann::ordered_json::parse(more.json);
    return fmt::format("{}\n", whole.dump(2));
  }
  if (kind != "html") return report;
  // Line by line: text() shows line ends as escapes.
  std::string lines;
  std::istringstream in(more.text);
  for (std::string line; std::getline(in, line);) lines += fmt::format("{}\n", html::text(line));
  const std::string section =
      html::card(more.title, html::scroller(more.title, html::element("pre", "", lines)));
  if (more.alone)
    return html::page(more.title, html::element("p", "brand", "Lockstep report") +
                                      html::element("main", "", section));
  constexpr std::string_view kEnd = "</main>";
  const std::size_t end = report.rfind(kEnd);
  LOCKSTEP_CHECK(end != std::string::npos, "a page has a main part");
  return report.insert(end, section);
}

}  // namespace

OutputForms report_forms() {
  OutputForms forms{"report", {}};
  for (const ReportForm& form : kForms) forms.kinds.emplace_back(form.kind);
  return forms;
}

Status check_outputs(const ReportOptions& options, const std::vector<std::string>& made) {
  auto targets = parse_output_targets(options.outputs, report_forms());
  if (!targets) return targets.error();
  if (const std::string& baseline = options.filter.write_baseline; !baseline.empty())
    targets->push_back({"baseline", baseline});
  return check_writable(*targets, made);
}

bool takes_stdout(const ReportOptions& options) {
  const auto targets = parse_output_targets(options.outputs, report_forms());
  return targets && std::any_of(targets->begin(), targets->end(),
                                [](const OutputTarget& target) { return target.to_stdout(); });
}

Status write_reports(const FilteredReport& report, const trace::Run& run,
                     const ReportOptions& options) {
  const auto targets = parse_output_targets(options.outputs, report_forms());
  if (!targets) return targets.error();
  const auto content = [&](const std::string& kind, bool to_stdout) {
    std::string text = rendered(kind, {report, run, options, to_stdout});
    return options.supplement ? supplemented(kind, std::move(text), *options.supplement)
                              : std::move(text);
  };
  // The baseline is a file as well: before what is printed.
  if (Status written = write_baseline(report, options.filter); !written) return written;
  return write_targets(*targets, options.quiet, content);
}

}  // namespace lockstep::reports
