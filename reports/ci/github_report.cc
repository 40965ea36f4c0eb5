// Findings as annotations of a GitHub Actions log: one workflow command per line.
#include <algorithm>
#include <cstddef>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"
#include "reports/ci/ci_reports.h"
#include "reports/findings/finding_words.h"

namespace lockstep::reports {
namespace {

constexpr std::size_t kAnnotations = 10;  // that GitHub shows per step

// The runner's escapes: % CR LF in data; in properties ":" and "," as well.
std::string escaped_for_github(std::string_view text, bool property) {
  std::string out;
  for (const char c : text) {
    if (c == '%')
      out += "%25";
    else if (c == '\r')
      out += "%0D";
    else if (c == '\n')
      out += "%0A";
    else if (property && c == ':')
      out += "%3A";
    else if (property && c == ',')
      out += "%2C";
    else
      out += c;
  }
  return out;
}

std::string_view command_for(verify::Severity severity) {
  switch (severity) {
    case verify::Severity::error:
      return "error";
    case verify::Severity::warning:
      return "warning";
    case verify::Severity::note:
      return "notice";
  }
  return "notice";
}

std::string annotation(const verify::Finding& finding, const Locator& locator) {
  const SourceLocation at = locator.of(finding);
  std::string properties =
      fmt::format("file={},line={}", escaped_for_github(at.file, true), at.line);
  if (at.column) properties += fmt::format(",col={}", *at.column);
  std::string text;
  for (const std::string& line : lines_of(finding))
    text.append(text.empty() ? "" : "\n").append(printable(line));
  return fmt::format("::{} {},title=lockstep {}::{}\n", command_for(finding.severity), properties,
                     verify::rule(finding.rule).name, escaped_for_github(text, false));
}

std::string plain(std::string_view kind, const std::string& text) {
  return fmt::format("::{} title=lockstep::{}\n", kind, escaped_for_github(printable(text), false));
}

}  // namespace

std::string github_report(const FilteredReport& filtered, const Locator& locator) {
  std::vector<const verify::Finding*> findings;
  for (const verify::Finding& finding : filtered.report.findings) findings.push_back(&finding);
  std::stable_sort(
      findings.begin(), findings.end(),
      [](const verify::Finding* a, const verify::Finding* b) { return a->severity > b->severity; });
  std::string out;
  if (filtered.report.verdict == verify::Verdict::inconclusive)
    out += plain("warning", fmt::format("inconclusive: {}", verdict_in_words(filtered.report)));
  // If there are too many, the tenth annotation is the line that counts the rest.
  const std::size_t room = kAnnotations - (out.empty() ? 0 : 1);
  const std::size_t shown = findings.size() <= room ? findings.size() : room - 1;
  for (std::size_t i = 0; i < shown; ++i) out += annotation(*findings[i], locator);
  if (shown < findings.size())
    out += plain("notice", fmt::format("and {}; --output json=PATH or markdown=PATH has them all",
                                       plural(findings.size() - shown, "more finding")));
  return out;
}

}  // namespace lockstep::reports
