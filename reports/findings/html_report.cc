#include "reports/findings/html_report.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/tables.h"
#include "base/text.h"
#include "base/tool_version.h"
#include "reports/findings/figures/matched_calls.h"
#include "reports/findings/figures/value_curves.h"
#include "reports/findings/figures/wait_figure.h"
#include "reports/findings/figures/wait_picture.h"
#include "reports/findings/finding_section.h"
#include "reports/findings/finding_words.h"
#include "reports/html/markup.h"
#include "reports/html/page.h"
#include "trace/run.h"
#include "verify/streams/streams.h"

namespace lockstep::reports::html {
namespace {

// What the ranks' batches contained: a row for each kind of rank, a column for each step around the
// relevant one.

constexpr std::size_t kSteps = 9;
constexpr std::size_t kModalityRows = 12;

// The steps to show: around `step`, or the last ones.
std::vector<std::int64_t> steps_around(const trace::Run& run, std::optional<std::int64_t> step) {
  std::set<std::int64_t> all;
  for (const trace::RankTrace& trace : run.ranks)
    for (const trace::ModalityMark& mark : trace.modalities) all.insert(mark.n);
  const std::vector<std::int64_t> steps(all.begin(), all.end());
  const auto position = static_cast<std::size_t>(
      step ? std::lower_bound(steps.begin(), steps.end(), *step) - steps.begin()
           : static_cast<std::ptrdiff_t>(steps.size()));
  const std::size_t last = std::min(steps.size(), position + kSteps / 2 + 1);
  const std::size_t first = last - std::min(last, kSteps);
  return {steps.begin() + static_cast<std::ptrdiff_t>(first),
          steps.begin() + static_cast<std::ptrdiff_t>(last)};
}

// By step: what the rank's batch contained; id 0: not recorded.
using Held = std::vector<trace::NameListId>;

std::map<Held, std::vector<trace::Rank>> ranks_by_held(const trace::Run& run,
                                                       const std::vector<std::int64_t>& steps) {
  std::map<Held, std::vector<trace::Rank>> rows;
  for (const trace::RankTrace& trace : run.ranks) {
    Held held(steps.size());
    for (const trace::ModalityMark& mark : trace.modalities) {
      const auto step = std::lower_bound(steps.begin(), steps.end(), mark.n);
      if (step != steps.end() && *step == mark.n)
        held[static_cast<std::size_t>(step - steps.begin())] = mark.has;
    }
    rows[held].push_back(trace.rank);
  }
  return rows;
}

// A label for each modality that some rank's batch contained in this step.
std::string batch_cell(const trace::Run& run, trace::NameListId held,
                       const std::set<std::string>& somebody_has) {
  if (held.value == 0) return "<span class=\"soft\">not recorded</span>";
  const std::vector<std::string> names = run.tables.names(held);
  std::string out;
  for (const std::string& name : somebody_has) {
    const bool has = std::find(names.begin(), names.end(), name) != names.end();
    out +=
        has ? element("span", "has", text(name)) : element("span", "has lacks", "no " + text(name));
  }
  return out.empty() ? "<span class=\"soft\">nothing</span>" : out;
}

// Markup; empty if no rank recorded modalities. `step`: the one to show; empty: the last.
// O(modality events).
std::string modality_table(const trace::Run& run, std::optional<std::int64_t> step) {
  const std::vector<std::int64_t> steps = steps_around(run, step);
  if (steps.empty()) return {};
  const auto folded = ranks_by_held(run, steps);
  std::vector<std::set<std::string>> somebody_has(steps.size());
  for (const auto& [held, ranks] : folded)
    for (std::size_t s = 0; s < steps.size(); ++s)
      for (std::string& name : run.tables.names(held[s])) somebody_has[s].insert(std::move(name));

  std::vector<std::pair<std::vector<trace::Rank>, Held>> rows;
  for (const auto& [held, ranks] : folded) rows.emplace_back(ranks, held);
  std::sort(rows.begin(), rows.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string out = "<table><thead><tr><th>ranks</th>";
  for (const std::int64_t n : steps) out += "<th>step " + std::to_string(n) + "</th>";
  out += "</tr></thead><tbody>";
  for (std::size_t r = 0; r < std::min(rows.size(), kModalityRows); ++r) {
    out += "<tr><th>" + text(rank_label(rows[r].first, 24)) + "</th>";
    for (std::size_t s = 0; s < steps.size(); ++s)
      out += std::string(step && steps[s] == *step ? "<td class=\"here\">" : "<td>") +
             batch_cell(run, rows[r].second[s], somebody_has[s]) + "</td>";
    out += "</tr>\n";
  }
  out = scroller("modalities of the batches", out + "</tbody></table>");
  if (rows.size() > kModalityRows)
    out += element("p", "caption",
                   "and " + plural(rows.size() - kModalityRows, "more kind") + " of ranks");
  return out;
}

}  // namespace
}  // namespace lockstep::reports::html

namespace lockstep::reports {
namespace {

using html::code;
using html::element;
using html::text;

constexpr std::size_t kFull = 12;  // findings in full
constexpr std::size_t kBriefly = 500;
constexpr std::size_t kListedOnPage = 200;
constexpr std::size_t kCharts = 6;

std::string card(std::string_view title, const std::string& content) {
  if (content.empty()) return {};
  return "<section class=\"card\"><h2>" + std::string(title) + "</h2>" + content + "</section>\n";
}

class HtmlWriter {
 public:
  HtmlWriter(const FilteredReport& filtered, const trace::Run& run,
             std::optional<verify::CallSemantics> semantics)
      : filtered_(filtered),
        report_(filtered.report),
        run_(run),
        semantics_(semantics),
        matched_(match_calls(run)),
        groups_(verify::group_streams(run)) {}

  std::string str() {
    std::string body = "<p class=\"brand\">Lockstep report</p>\n<main>\n" + verdict() + contents();
    const std::size_t full = std::min(kFull, report_.findings.size());
    for (std::size_t i = 0; i < full; ++i) {
      body += html::finding_section(report_.findings[i], {run_, matched_, groups_}, id(i));
      // The graph of waits belongs to the first finding, the cause; without one it stands alone.
      if (i == 0) body += waits();
    }
    if (full == 0) body += waits();
    body +=
        more_findings() + modalities() +
        card("Numbers over the steps", html::value_charts(value_curves(report_, run_, kCharts))) +
        listed("Not known from these traces", report_.unknown) + set_aside() +
        listed("About the filter", filtered_.notes) + "</main>\n" + footer();
    return html::page("Lockstep: " + std::string(verify::to_string(report_.verdict)), body);
  }

 private:
  static std::string id(std::size_t finding) { return "finding-" + std::to_string(finding + 1); }

  std::string verdict() const {
    std::string_view look, mark, title;
    // Findings are sorted, worst first: the first one decides the colour.
    const bool errors =
        !report_.findings.empty() && report_.findings.front().severity == verify::Severity::error;
    switch (report_.verdict) {
      case verify::Verdict::clean:
        look = "good", mark = "✓",
        title = filtered_.set_aside.empty() ? "Nothing is wrong" : "Nothing else is wrong";
        break;
      case verify::Verdict::findings:
        look = errors ? "error" : "warning", mark = errors ? "✕" : "!";
        break;
      case verify::Verdict::inconclusive:
        look = "warning", mark = "?", title = "No error seen, but not all is known";
        break;
    }
    const std::string badge = "<span class=\"badge\"><span aria-hidden=\"true\">" +
                              std::string(mark) + "</span>" +
                              html::text(verify::to_string(report_.verdict)) + "</span>";
    const std::string words = title.empty() ? counts() : std::string(title);
    const verify::Finding* const first = headline_of(report_);
    return "<header class=\"verdict " + std::string(look) + "\">" + badge + "<h1>" +
           (first == nullptr ? html::text(words) : html::sentence(first->headline)) + "</h1>" +
           (first == nullptr ? "" : html::element("p", "", html::text(words))) + numbers() +
           "</header>\n";
  }

  std::string counts() const {
    std::vector<std::string> parts;
    for (const verify::Severity severity :
         {verify::Severity::error, verify::Severity::warning, verify::Severity::note}) {
      const auto n =
          std::count_if(report_.findings.begin(), report_.findings.end(),
                        [&](const verify::Finding& f) { return f.severity == severity; });
      if (n > 0)
        parts.push_back(plural(static_cast<std::uint64_t>(n), verify::to_string(severity)));
    }
    return join_and(parts) + " in " + grouped(report_.ranks_read.size()) +
           (report_.ranks_read.size() == 1 ? " rank" : " ranks");
  }

  static std::string number(std::string_view key, const std::string& value) {
    return value.empty()
               ? ""
               : "<div><dt>" + std::string(key) + "</dt><dd>" + html::text(value) + "</dd></div>";
  }

  std::string numbers() const {
    std::set<std::int64_t> steps;
    std::set<std::string> backends, programs, hosts;
    for (const trace::RankTrace& trace : run_.ranks) {
      for (const trace::StepMark& step : trace.steps) steps.insert(step.n);
      if (!trace.backend.empty()) backends.insert(trace.backend);
      if (!trace.program.empty()) programs.insert(trace.program);
      if (!trace.host.empty()) hosts.insert(trace.host);
    }
    const auto list = [](const std::set<std::string>& names) {
      return join_and(std::vector<std::string>(names.begin(), names.end()), 3);
    };
    const auto expected = static_cast<std::size_t>(std::max(0, report_.ranks_expected));
    std::string out =
        number("Ranks read",
               grouped(report_.ranks_read.size()) +
                   (report_.ranks_read.size() == expected ? "" : " of " + grouped(expected)));
    if (!report_.ranks_missing.empty())
      out += number("Without a trace", rank_label(report_.ranks_missing, 40));
    if (!report_.ranks_damaged.empty())
      out += number("Damaged trace", rank_label(report_.ranks_damaged, 40));
    out += number("Events", grouped(report_.events));
    out += number("Steps finished", steps.empty() ? "" : grouped(steps.size()));
    out += number("Backend", list(backends));
    out += number("Program", list(programs));
    if (hosts.size() > 1) out += number("Hosts", list(hosts));
    return html::element("dl", "numbers", out);
  }

  std::string contents() const {
    const std::size_t full = std::min(kFull, report_.findings.size());
    if (full < 2) return {};
    std::string items;
    for (std::size_t i = 0; i < full; ++i) {
      const verify::Finding& one = report_.findings[i];
      items += "<li class=\"" + std::string(verify::to_string(one.severity)) + "\"><a href=\"#" +
               id(i) + "\"><span><span class=\"badge\">" +
               html::text(verify::to_string(one.severity)) + "</span></span><span>" +
               html::sentence(shorten_end(one.message, 160)) + "</span></a></li>\n";
    }
    return "<nav aria-label=\"findings\"><ol>" + items + "</ol></nav>\n";
  }

  std::string waits() const {
    return card("Who waits for whom", html::wait_figure(wait_picture(report_, run_, semantics_)));
  }

  std::string more_findings() const {
    if (report_.findings.size() <= kFull) return {};
    std::string rows;
    const std::size_t end = std::min(report_.findings.size(), kFull + kBriefly);
    for (std::size_t i = kFull; i < end; ++i) {
      const verify::Finding& one = report_.findings[i];
      rows += "<tr><td>" + html::text(verify::to_string(one.severity)) + "</td><td>" +
              html::code(verify::rule(one.rule).name) + "</td><td>" + html::text(one.message) +
              "</td></tr>\n";
    }
    std::string out =
        html::scroller("further findings",
                       "<table><thead><tr><th>severity</th><th>rule</th><th>what happened"
                       "</th></tr></thead><tbody>" +
                           rows + "</tbody></table>");
    if (end < report_.findings.size())
      out += html::element("p", "caption",
                           "and " + plural(report_.findings.size() - end, "more finding"));
    return card("Further findings", out);
  }

  std::string modalities() const {
    std::optional<std::int64_t> step;
    if (!report_.findings.empty()) step = report_.findings.front().step;
    return card("What the batches held", html::modality_table(run_, step));
  }

  std::string set_aside() const {
    std::vector<std::string> lines;
    for (const SetAside& one : filtered_.set_aside) lines.push_back(set_aside_in_words(one));
    return listed("Found, but set aside", lines);
  }

  static std::string listed(std::string_view title, const std::vector<std::string>& lines) {
    if (lines.empty()) return {};
    std::string items;
    for (std::size_t i = 0; i < std::min(kListedOnPage, lines.size()); ++i)
      items += "<li>" + html::sentence(lines[i]) + "</li>\n";
    if (lines.size() > kListedOnPage)
      items +=
          "<li class=\"soft\">and " + std::to_string(lines.size() - kListedOnPage) + " more</li>";
    return card(title, html::element("ul", "plain", items));
  }

  static std::string footer() {
    return "<footer><p><strong>Proven</strong>: no order of events lets these ranks continue, or "
           "the "
           "values differ. <strong>Observed</strong>: seen in this run. "
           "<strong>Possible</strong>: some legal order of events leads to it.</p><p>Written by " +
           html::text(tool_version()) + ".</p></footer>\n";
  }

  const FilteredReport& filtered_;
  const verify::Report& report_;
  const trace::Run& run_;
  std::optional<verify::CallSemantics> semantics_;
  MatchedCalls matched_;
  std::vector<verify::GroupStreams> groups_;
};

}  // namespace

std::string html_report(const FilteredReport& filtered, const trace::Run& run,
                        std::optional<verify::CallSemantics> semantics) {
  return HtmlWriter(filtered, run, semantics).str();
}

}  // namespace lockstep::reports
