// The report as one HTML page: verdict and cause, each finding with its pictures, what batches
// held, every rank, and what is unknown.
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/quantities.h"
#include "base/tables.h"
#include "base/text.h"
#include "base/tool_version.h"
#include "reports/findings/figures/figures.h"
#include "reports/findings/figures/matched_calls.h"
#include "reports/findings/figures/wait_picture.h"
#include "reports/findings/finding_section.h"
#include "reports/findings/finding_words.h"
#include "reports/findings/reports.h"
#include "reports/html/markup.h"
#include "reports/html/page.h"
#include "reports/table.h"
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
  // `step` is in the middle if there are enough steps on both sides. Always kSteps columns, if
  // there are as many steps.
  const std::size_t last = std::min(steps.size(), position + kSteps / 2 + 1);
  const std::size_t first = last - std::min(last, kSteps);
  return {steps.begin() + static_cast<std::ptrdiff_t>(first),
          steps.begin() + static_cast<std::ptrdiff_t>(last)};
}

// The modalities in a rank's batches, by step; id 0: not recorded.
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
  // Also shows a modality that this batch lacks and another rank's has: that makes ranks diverge.
  for (const std::string& name : somebody_has) {
    const bool has = std::find(names.begin(), names.end(), name) != names.end();
    out += has ? element("span", "has", text(name))
               : element("span", "has lacks", fmt::format("no {}", text(name)));
  }
  return out.empty() ? "<span class=\"soft\">nothing</span>" : out;
}

// Returns markup; empty if no rank recorded modalities. `step`: to show; empty: the last.
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
  std::string head, body;
  for (const std::int64_t n : steps) head += fmt::format("<th>step {}</th>", n);
  for (std::size_t r = 0; r < std::min(rows.size(), kModalityRows); ++r) {
    body += fmt::format("<tr><th>{}</th>", text(rank_label(rows[r].first, 24)));
    for (std::size_t s = 0; s < steps.size(); ++s)
      body += fmt::format("<td{}>{}</td>", step && steps[s] == *step ? " class=\"here\"" : "",
                          batch_cell(run, rows[r].second[s], somebody_has[s]));
    body += "</tr>\n";
  }
  std::string out = scroller(
      "modalities of the batches",
      fmt::format("<table><thead><tr><th>ranks</th>{}</tr></thead><tbody>{}</tbody></table>", head,
                  body));
  if (rows.size() > kModalityRows)
    out +=
        element("p", "caption",
                fmt::format("and {} of ranks", plural(rows.size() - kModalityRows, "more kind")));
  return out;
}

}  // namespace
}  // namespace lockstep::reports::html

namespace lockstep::reports {
namespace {

using html::card;
using html::code;
using html::element;
using html::text;

// Bounds that keep the page of a run with thousands of findings below a few hundred KB. The JSON
// report has all findings in full.
constexpr std::size_t kBriefly = 500;       // further findings, a row each
constexpr std::size_t kListedOnPage = 200;  // items of other lists
constexpr std::size_t kCharts = 6;

// Keeps browsers from breaking lines at the hyphens of a date.
std::string with_whole_dates(const std::string& markup) {
  static const std::regex kDate(R"(\b\d{4}-\d{2}-\d{2}\b)");
  return std::regex_replace(markup, kDate, "<span class=\"whole\">$&</span>");
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

  // In the order in which a reader needs them: who and what to run next, who waits for whom, the
  // calls around it; then all ranks, and details.
  std::string str() {
    const std::string sections = html::finding_sections(report_, {run_, matched_, groups_});
    const WaitPicture waits = wait_picture(report_, run_, semantics_);
    const std::string ranks = html::rank_overview(report_, run_, waits);
    const std::string body = fmt::format(
        "<p class=\"brand\">Lockstep report</p>\n<main>\n{}</main>\n{}",
        fmt::join({verdict(), card("Who waits for whom", html::wait_figure(waits)), contents(),
                   sections, ranks, more_findings(), modalities(),
                   card("Numbers over the steps",
                        html::value_charts(value_curves(report_, run_, kCharts))),
                   listed("Not known from these traces", report_.unknown), set_aside(),
                   listed("About the filter", filtered_.notes), card("This run", numbers())},
                  ""),
        footer());
    return html::page(fmt::format("Lockstep: {}", verify::to_string(report_.verdict)), body,
                      ranks.empty() ? html::Scripts::none : html::Scripts::explore);
  }

 private:
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
    const std::string badge =
        fmt::format("<span class=\"badge\"><span aria-hidden=\"true\">{}</span>{}</span>", mark,
                    html::text(verify::to_string(report_.verdict)));
    const std::string summary = title.empty()
                                    ? fmt::format("{} in {}", counts_in_words(report_),
                                                  plural(report_.ranks_read.size(), "rank"))
                                    : std::string(title);
    const verify::Finding* const first = headline_of(report_);
    std::string below;
    if (first != nullptr && !first->next.empty())
      below += html::element("p", "next", html::code(first->next));
    if (first != nullptr) below += html::element("p", "", html::text(summary));
    // Without a headline the worst finding says what happened, above all pictures.
    if (first == nullptr && !report_.findings.empty() &&
        report_.findings.front().severity != verify::Severity::note)
      below += html::element("p", "",
                             html::sentence(shorten_end(report_.findings.front().message, 280)));
    return fmt::format(
        "<header class=\"verdict {}\">{}<h1>{}</h1>{}</header>\n", look, badge,
        first == nullptr ? html::text(summary) : with_whole_dates(html::sentence(first->headline)),
        below);
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
    const std::size_t read = report_.ranks_read.size();
    std::vector<html::NamedFigure> out = {
        {"Ranks read", read == expected
                           ? grouped(expected)
                           : fmt::format("{} of {}", grouped(read), grouped(expected))}};
    if (!report_.ranks_missing.empty())
      out.push_back({"Without a trace", rank_label(report_.ranks_missing, 40)});
    if (!report_.ranks_damaged.empty())
      out.push_back({"Damaged trace", rank_label(report_.ranks_damaged, 40)});
    out.push_back({"Events", grouped(report_.events)});
    if (!steps.empty()) out.push_back({"Steps finished", grouped(steps.size())});
    if (!backends.empty()) out.push_back({"Backend", list(backends)});
    if (!programs.empty()) out.push_back({"Program", list(programs)});
    if (hosts.size() > 1) out.push_back({"Hosts", list(hosts)});
    return html::figures(out);
  }

  std::string contents() const {
    const std::size_t full = std::min(html::kFindingsInFull, report_.findings.size());
    if (full < 2) return {};
    std::string items;
    for (std::size_t i = 0; i < full; ++i) {
      const verify::Finding& one = report_.findings[i];
      items += fmt::format(
          "<li class=\"{0}\"><a href=\"#{1}\"><span><span class=\"badge\">{0}</span></span>"
          "<span>{2}</span></a></li>\n",
          verify::to_string(one.severity), html::finding_id(i),
          html::sentence(shorten_end(one.message, 160)));
    }
    return fmt::format("<nav aria-label=\"findings\"><ol>{}</ol></nav>\n", items);
  }

  std::string more_findings() const {
    if (report_.findings.size() <= html::kFindingsInFull) return {};
    Table table({{"severity"}, {"rule", Column::code}, {"what happened"}});
    const std::size_t end = std::min(report_.findings.size(), html::kFindingsInFull + kBriefly);
    for (std::size_t i = html::kFindingsInFull; i < end; ++i) {
      const verify::Finding& one = report_.findings[i];
      table.add({std::string(verify::to_string(one.severity)),
                 std::string(verify::rule(one.rule).name), one.message});
    }
    std::string out = table.html("further findings");
    if (end < report_.findings.size())
      out += html::element(
          "p", "caption",
          fmt::format("and {}", plural(report_.findings.size() - end, "more finding")));
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
      items += fmt::format("<li>{}</li>\n", html::sentence(lines[i]));
    if (lines.size() > kListedOnPage)
      items += fmt::format("<li class=\"soft\">and {} more</li>", lines.size() - kListedOnPage);
    return card(title, html::element("ul", "plain", items));
  }

  static std::string footer() {
    return fmt::format(
        "<footer><p><strong>Proven</strong>: no order of events lets these ranks continue, or the "
        "values differ. <strong>Observed</strong>: seen in this run. <strong>Possible</strong>: "
        "some legal order of events leads to it.</p><p>Written by {}.</p></footer>\n",
        html::text(tool_version()));
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
