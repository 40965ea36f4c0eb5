// The page of a sweep: what was tried, the Pareto front as a chart, and the tables.
#include "reports/html/page.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "base/tables.h"
#include "base/text.h"
#include "base/tool_version.h"
#include "reports/html/markup.h"
#include "reports/html/svg.h"
#include "reports/sweeps/report.h"

namespace lockstep::reports::html {
namespace {

// The Pareto chart. Choices are dots: cost to the right, gain upwards; the front is highlighted.
// Inline SVG without script; a dot's text is its tooltip.

struct ParetoDot {
  double x = 0, y = 0;  // finite, not negative
  enum class Kind { beaten, front, too_large } kind = Kind::beaten;
  std::string words;  // identifies it among the others
  std::string mark;   // next to a dot of the front: for example its number in a table
};

struct ParetoChart {
  std::string label;  // for screen readers
  std::string x_title, y_title;
  std::function<std::string(double)> x_text, y_text;  // formats a number at an axis
  std::vector<ParetoDot> dots;
};

constexpr double kParetoWidth = 760, kParetoHeight = 420;
constexpr Box kParetoPlot{74, 30, kParetoWidth - 74 - 24, kParetoHeight - 30 - 52};
constexpr double kFarApart = 50;  // ratio of largest to smallest from which an axis is logarithmic
constexpr std::size_t kMostMarks = 24;  // more are not readable
constexpr double kTicks = 5;

// Maps numbers to positions from 0 to 1. A linear axis begins at 0, a logarithmic one at a power of
// ten.
class Axis {
 public:
  explicit Axis(const std::vector<double>& values) {
    double low = INFINITY;
    for (const double value : values) {
      low = std::min(low, value);
      high_ = std::max(high_, value);
    }
    logarithmic_ = low > 0 && high_ / low > kFarApart;
    if (high_ <= 0) high_ = 1;
    if (logarithmic_) {
      low_ = std::pow(10, std::floor(std::log10(low)));
      high_ *= 1.1;
    } else {
      high_ *= 1.06;
    }
  }

  double fraction(double value) const {
    return logarithmic_ ? std::log(value / low_) / std::log(high_ / low_) : value / high_;
  }

  std::vector<double> ticks() const {
    std::vector<double> out;
    if (logarithmic_) {
      for (double tick = low_; tick <= high_; tick *= 10) out.push_back(tick);
      return out;
    }
    // Ticks at multiples of 1, 2 or 5 times a power of ten, about kTicks of them.
    const double rough = high_ / kTicks;
    const double power = std::pow(10, std::floor(std::log10(rough)));
    double step = 10 * power;
    for (const double factor : {5.0, 2.0, 1.0})
      if (factor * power >= rough * 0.8) step = factor * power;
    for (double i = 0; i * step <= high_; ++i) out.push_back(i * step);
    return out;
  }

 private:
  double low_ = 0, high_ = 0;
  bool logarithmic_ = false;
};

std::string classes_of(ParetoDot::Kind kind) {
  switch (kind) {
    case ParetoDot::Kind::beaten:
      return "dot";
    case ParetoDot::Kind::front:
      return "dot front";
    case ParetoDot::Kind::too_large:
      return "dot off";
  }
  return "dot";
}

class ParetoDrawing {
 public:
  explicit ParetoDrawing(const ParetoChart& chart)
      : chart_(chart), x_(numbers(&ParetoDot::x)), y_(numbers(&ParetoDot::y)) {}

  std::string str() const {
    // Drawn in this order, the front is on top.
    return axes() + dots(ParetoDot::Kind::too_large) + dots(ParetoDot::Kind::beaten) +
           dots(ParetoDot::Kind::front) + marks();
  }

 private:
  std::vector<double> numbers(double ParetoDot::*member) const {
    std::vector<double> out;
    for (const ParetoDot& dot : chart_.dots) out.push_back(dot.*member);
    return out;
  }
  Point at(const ParetoDot& dot) const {
    return {kParetoPlot.x + kParetoPlot.width * x_.fraction(dot.x),
            kParetoPlot.y + kParetoPlot.height * (1 - y_.fraction(dot.y))};
  }

  std::string axes() const {
    const double bottom = kParetoPlot.y + kParetoPlot.height;
    std::string out =
        svg_line("axis", {kParetoPlot.x, kParetoPlot.y}, {kParetoPlot.x, bottom}) +
        svg_line("axis", {kParetoPlot.x, bottom}, {kParetoPlot.x + kParetoPlot.width, bottom});
    for (const double tick : x_.ticks()) {
      const double x = kParetoPlot.x + kParetoPlot.width * x_.fraction(tick);
      out += svg_line("axis", {x, bottom}, {x, bottom + 5}) +
             svg_text("note", {x, bottom + 19}, chart_.x_text(tick), "middle");
    }
    for (const double tick : y_.ticks()) {
      const double y = kParetoPlot.y + kParetoPlot.height * (1 - y_.fraction(tick));
      out += svg_line("axis", {kParetoPlot.x - 5, y}, {kParetoPlot.x, y}) +
             svg_text("note", {kParetoPlot.x - 9, y + 4}, chart_.y_text(tick), "end");
    }
    return out +
           svg_text("note", {kParetoPlot.x + kParetoPlot.width, kParetoHeight - 8}, chart_.x_title,
                    "end") +
           svg_text("note", {6, 14}, chart_.y_title);
  }

  std::string dots(ParetoDot::Kind kind) const {
    std::string out;
    for (const ParetoDot& dot : chart_.dots) {
      if (dot.kind != kind) continue;
      const Point where = at(dot);
      out += "<circle class=\"" + classes_of(kind) + "\" cx=\"" + px(where.x) + "\" cy=\"" +
             px(where.y) + "\" r=\"" + (kind == ParetoDot::Kind::front ? "6" : "4") + "\"><title>" +
             text(dot.words) + "</title></circle>";
    }
    return out;
  }

  std::string marks() const {
    std::string out;
    std::size_t marked = 0;
    for (const ParetoDot& dot : chart_.dots) {
      if (dot.mark.empty() || ++marked > kMostMarks) continue;
      const Point where = at(dot);
      out += svg_text("state", {where.x + 8, where.y - 7}, dot.mark);
    }
    return out;
  }

  const ParetoChart& chart_;
  Axis x_, y_;
};

// Empty without dots. An axis is logarithmic if its numbers are far apart.
std::string pareto_chart(const ParetoChart& chart) {
  if (chart.dots.empty()) return {};
  const std::string picture =
      svg_picture(chart.label, kParetoWidth, kParetoHeight, ParetoDrawing(chart).str());
  return element("figure", "", scroller(chart.label, picture));
}

}  // namespace
}  // namespace lockstep::reports::html

namespace lockstep::reports {
namespace {

using html::code;
using html::element;
using html::text;

// Bounds, so that a browser opens the page quickly.
constexpr std::size_t kMostDots = 2000;
constexpr std::size_t kMostPlans = 1000;
constexpr std::size_t kMostReasons = 100;

std::string card(std::string_view title, const std::string& content) {
  if (content.empty()) return {};
  return "<section class=\"card\"><h2>" + html::text(title) + "</h2>" + content + "</section>\n";
}

std::string named_number(std::string_view name, std::string_view value) {
  return "<div>" + html::element("dt", "", html::text(name)) +
         html::element("dd", "", html::text(value)) + "</div>";
}

class SweepPage {
 public:
  explicit SweepPage(const Summary& summary)
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

  std::string line(const std::string& label, std::size_t row) const {
    const sim::Row& one = summary_.rows[row];
    std::string out = html::element("td", "n", html::text(label));
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
      if (shown >= kMostPlans && !ranking_.on_front[ranking_.fitting[i]]) continue;
      ++shown;
      lines += line(std::to_string(i + 1), ranking_.fitting[i]);
    }
    for (std::size_t i = 0; i < ranking_.too_large.size() && shown < kMostPlans; ++i, ++shown)
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

std::string sweep_html(const Summary& summary) { return SweepPage(summary).str(); }

}  // namespace lockstep::reports
