// The page of a sweep: what was tried, the front as a chart, and the tables.
#include "reports/html/page.h"

#include <algorithm>

#include "base/tables.h"
#include "base/text.h"
#include "base/tool_version.h"
#include "reports/html/markup.h"
#include "reports/html/pareto_chart.h"
#include "reports/sweeps/report.h"

namespace lockstep::reports {
namespace {

using html::code;
using html::element;
using html::text;

// A page that a browser opens at once.
constexpr std::size_t kMostDots = 2000;
constexpr std::size_t kMostRows = 1000;
constexpr std::size_t kMostReasons = 100;

std::string card(std::string_view title, const std::string& content) {
  if (content.empty()) return {};
  return "<section class=\"card\"><h2>" + html::text(title) + "</h2>" + content + "</section>\n";
}

std::string named_number(std::string_view name, std::string_view value) {
  return "<div>" + html::element("dt", "", html::text(name)) +
         html::element("dd", "", html::text(value)) + "</div>";
}

class Page {
 public:
  explicit Page(const Summary& summary)
      : summary_(summary), ranking_(sim::rank(summary.rows, summary.goal)) {}

  std::string str() const {
    const std::string body =
        "<p class=\"brand\">Lockstep sweep</p>\n<main>\n" + head() + card("Pareto front", chart()) +
        card("Plans", table()) + card("Hang", reasons(ranking_.hanging)) +
        card("Refused", reasons(ranking_.refused)) + card("Failed", reasons(ranking_.failed)) +
        "</main>\n<footer><p>" + html::text("lockstep " + std::string(tool_version())) +
        "</p></footer>\n";
    return html::page("Lockstep sweep: " + summary_.scenario, body);
  }

 private:
  std::string head() const {
    std::string out = "<header class=\"verdict\">" +
                      html::element("h1", "", html::text(summary_.scenario)) +
                      html::element("p", "", html::sentence(tried_text(summary_)) + ".") +
                      "<dl class=\"numbers\">";
    out += named_number("sorted by", objective_text(summary_.goal.objective));
    if (summary_.goal.memory_limit)
      out += named_number("memory of a rank at most", amount(*summary_.goal.memory_limit));
    out += named_number("fit", grouped(ranking_.fitting.size()));
    out += named_number("do not fit", grouped(ranking_.too_large.size()));
    out += named_number("hang", grouped(ranking_.hanging.size()));
    out += named_number("refused", grouped(ranking_.refused.size()));
    if (!ranking_.failed.empty()) out += named_number("failed", grouped(ranking_.failed.size()));
    return out + "</dl></header>\n";
  }

  double value(const sim::Row& row) const {
    switch (summary_.goal.objective) {
      case sim::Objective::step_time:
        return row.step_seconds * 1e3;
      case sim::Objective::samples_per_second:
        return row.samples_per_second;
      case sim::Objective::samples_per_second_per_rank:
        return row.samples_per_second_per_rank();
    }
    return 0;
  }
  std::string unit() const {
    return summary_.goal.objective == sim::Objective::step_time
               ? "ms a step"
               : objective_text(summary_.goal.objective);
  }

  html::ParetoDot dot(std::size_t row, const std::string& mark) const {
    using Kind = html::ParetoDot::Kind;
    const sim::Row& one = summary_.rows[row];
    const Kind kind = ranking_.on_front[row]          ? Kind::front
                      : sim::fits(one, summary_.goal) ? Kind::beaten
                                                      : Kind::too_large;
    return {one.memory_bytes, value(one), kind,
            point_text(summary_, one) + ": " + fixed(value(one), 2) + " " + unit() + ", " +
                amount(one.memory_bytes) + ", " +
                plural(static_cast<std::uint64_t>(one.ranks), "rank"),
            kind == Kind::front ? mark : ""};
  }

  std::string chart() const {
    html::ParetoChart out{"Plans by memory of a rank and " + unit(),
                          "memory of a rank",
                          unit(),
                          amount,
                          [](double y) { return y > 0 && y < 10 ? fixed(y, 2) : fixed(y, 0); },
                          {}};
    std::size_t drawn = 0;
    for (const auto* rows : {&ranking_.fitting, &ranking_.too_large}) {
      for (std::size_t i = 0; i < rows->size(); ++i) {
        const std::size_t row = (*rows)[i];
        if (drawn >= kMostDots && !ranking_.on_front[row]) continue;
        ++drawn;
        out.dots.push_back(dot(row, std::to_string(i + 1)));
      }
    }
    if (out.dots.empty()) return {};
    return html::element(
               "p", "caption",
               html::text("Filled: no plan that fits is as good in " +
                          objective_text(summary_.goal.objective) +
                          ", memory of a rank and number of ranks, and better in one of them; the "
                          "number is its line below. Ringed: beaten. Dashed: does not fit.")) +
           html::pareto_chart(out) +
           html::element("p", "caption", html::text(memory_text(summary_) + "."));
  }

  std::string line(const std::string& place, std::size_t row) const {
    const sim::Row& one = summary_.rows[row];
    std::string out = html::element("td", "n", html::text(place));
    for (const std::string& cell : value_cells(summary_, one))
      out += html::element("td", "", html::code(cell));
    out += html::element("td", "n", html::text(std::to_string(one.ranks)));
    out += html::element("td", "n", html::text(in_milliseconds(one.step_seconds)));
    out += html::element("td", "n", html::text(fixed(one.samples_per_second, 1)));
    out += html::element("td", "n", html::text(amount(one.memory_bytes)));
    out += html::element(
        "td", "n",
        html::text(one.transformer ? percent(one.transformer->mfu) : amount(one.sent_bytes)));
    const bool fit = sim::fits(one, summary_.goal);
    out += html::element("td", "", ranking_.on_front[row] ? "front" : fit ? "" : "does not fit");
    return html::element("tr", "", out) + "\n";
  }

  std::string table() const {
    if (ranking_.fitting.empty() && ranking_.too_large.empty()) return {};
    std::string heads = html::element("th", "n", "");
    for (const std::string& head : value_heads(summary_))
      heads += html::element("th", "", html::text(head));
    const char* last = summary_.transformers ? "MFU" : "sent";
    for (const char* head : {"world", "ms/step", "samples/s", "memory", last})
      heads += html::element("th", "n", head);
    std::string lines;
    std::size_t shown = 0;
    for (std::size_t i = 0; i < ranking_.fitting.size(); ++i) {
      if (shown >= kMostRows && !ranking_.on_front[ranking_.fitting[i]]) continue;
      ++shown;
      lines += line(std::to_string(i + 1), ranking_.fitting[i]);
    }
    for (std::size_t i = 0; i < ranking_.too_large.size() && shown < kMostRows; ++i, ++shown)
      lines += line("", ranking_.too_large[i]);
    const std::size_t all = ranking_.fitting.size() + ranking_.too_large.size();
    const std::string more =
        all > shown
            ? html::element("p", "caption", html::text(grouped(all - shown) + " more are left out"))
            : "";
    return html::scroller("plans", "<table><thead><tr>" + heads +
                                       "<th></th></tr></thead><tbody>\n" + lines +
                                       "</tbody></table>") +
           more;
  }

  std::string reasons(const std::vector<std::size_t>& rows) const {
    std::string out;
    const std::vector<Reason> all = by_reason(summary_, rows);
    for (std::size_t i = 0; i < std::min(all.size(), kMostReasons); ++i)
      out += html::element("li", "",
                           html::text(grouped(all[i].rows.size()) + " × " + all[i].text) + "<br>" +
                               html::element("span", "soft small",
                                             html::code(point_text(
                                                 summary_, summary_.rows[all[i].rows.front()])))) +
             "\n";
    return out.empty() ? out : html::element("ul", "plain", out);
  }

  const Summary& summary_;
  sim::Ranking ranking_;
};

}  // namespace

std::string sweep_html(const Summary& summary) { return Page(summary).str(); }

}  // namespace lockstep::reports
