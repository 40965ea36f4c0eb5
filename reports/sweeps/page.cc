// The page of a sweep: what was tried, the Pareto front as a chart, and the tables.
#include "reports/html/page.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/quantities.h"
#include "base/tables.h"
#include "base/text.h"
#include "reports/html/markup.h"
#include "reports/html/svg.h"
#include "reports/sweeps/report.h"
#include "reports/table.h"

namespace lockstep::reports::html {
namespace {

// The Pareto chart. Choices are dots: cost to the right, gain upwards; the front is highlighted.
// Inline SVG without script; a dot's text is its tooltip.

struct ParetoDot {
  double x = 0, y = 0;  // finite, not negative; x in bytes
  enum class Kind { beaten, front, too_large } kind = Kind::beaten;
  std::string words;  // identifies it among the others
  std::string mark;   // next to a dot of the front: for example its number in a table
};

struct ParetoChart {
  std::string label;  // for screen readers
  std::string x_title, y_title;
  std::function<std::string(double)> x_text, y_text;  // formats a number at an axis
  std::vector<ParetoDot> dots;
  bool less_is_better = false;  // of y; of x it always is
};

constexpr double kParetoWidth = 760, kParetoNarrow = 340;  // with a card's width, and a phone's
constexpr double kParetoHeight = 420;
constexpr double kFarApart = 50;  // ratio of largest to smallest from which an axis is logarithmic
constexpr std::size_t kMostMarks = 24;  // more are not readable
constexpr double kTicks = 5;

// The largest power of 1024 that is at most this: what bytes_text() shows it in.
double unit_of_bytes(double size) {
  double unit = 1;
  while (size >= unit * 1024) unit *= 1024;
  return unit;
}

// Maps numbers to positions from 0 to 1. A linear axis begins at 0, a logarithmic one at a power of
// ten. Ticks are round numbers, of bytes in the unit that they are shown in.
class Axis {
 public:
  enum class Of : unsigned char { numbers, bytes };
  Axis(const std::vector<double>& values, Of what) {
    double low = INFINITY;
    for (const double value : values) {
      low = std::min(low, value);
      high_ = std::max(high_, value);
    }
    logarithmic_ = low > 0 && high_ / low > kFarApart;
    if (high_ <= 0) high_ = 1;
    if (what == Of::bytes) unit_ = unit_of_bytes(logarithmic_ ? low : high_);
    if (logarithmic_) {
      low_ = unit_ * std::pow(10, std::floor(std::log10(low / unit_)));
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
    const double power = unit_ * std::pow(10, std::floor(std::log10(rough / unit_)));
    double step = 10 * power;
    for (const double factor : {5.0, 2.0, 1.0})
      if (factor * power >= rough * 0.8) step = factor * power;
    for (double i = 0; i * step <= high_; ++i) out.push_back(i * step);
    return out;
  }

 private:
  double unit_ = 1;
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
  ParetoDrawing(const ParetoChart& chart, double width)
      : chart_(chart),
        width_(width),
        plot_{width < kParetoWidth ? 40.0 : 74.0, 30, 0, kParetoHeight - 30 - 52},
        x_(numbers(&ParetoDot::x), Axis::Of::bytes),
        y_(numbers(&ParetoDot::y), Axis::Of::numbers) {
    plot_.width = width - plot_.x - 24;
  }

  std::string str() const {
    // Drawn in this order, the front is on top.
    return svg_picture(chart_.label, width_, kParetoHeight,
                       axes() + dots(ParetoDot::Kind::too_large) + dots(ParetoDot::Kind::beaten) +
                           dots(ParetoDot::Kind::front) + marks());
  }

 private:
  std::vector<double> numbers(double ParetoDot::*member) const {
    std::vector<double> out;
    for (const ParetoDot& dot : chart_.dots) out.push_back(dot.*member);
    return out;
  }
  Point at(const ParetoDot& dot) const {
    return {plot_.x + plot_.width * x_.fraction(dot.x),
            plot_.y + plot_.height * (1 - y_.fraction(dot.y))};
  }

  std::string axes() const {
    const double bottom = plot_.y + plot_.height;
    std::string out = svg_line("axis", {plot_.x, plot_.y}, {plot_.x, bottom}) +
                      svg_line("axis", {plot_.x, bottom}, {plot_.x + plot_.width, bottom});
    for (const double tick : x_.ticks()) {
      const double x = plot_.x + plot_.width * x_.fraction(tick);
      out += svg_line("axis", {x, bottom}, {x, bottom + 5}) +
             svg_text("note", {x, bottom + 19}, chart_.x_text(tick), "middle");
    }
    for (const double tick : y_.ticks()) {
      const double y = plot_.y + plot_.height * (1 - y_.fraction(tick));
      out += svg_line("axis", {plot_.x - 5, y}, {plot_.x, y}) +
             svg_text("note", {plot_.x - 9, y + 4}, chart_.y_text(tick), "end");
    }
    return out +
           svg_text("note", {plot_.x + plot_.width, kParetoHeight - 8}, chart_.x_title, "end") +
           svg_text("note", {6, 14}, chart_.y_title);
  }

  std::string dots(ParetoDot::Kind kind) const {
    std::string out;
    for (const ParetoDot& dot : chart_.dots) {
      if (dot.kind != kind) continue;
      const Point where = at(dot);
      out += fmt::format(
          "<circle class=\"{}\" cx=\"{}\" cy=\"{}\" r=\"{}\"><title>{}</title></circle>",
          classes_of(kind), px(where.x), px(where.y), kind == ParetoDot::Kind::front ? 6 : 4,
          text(dot.words));
    }
    return out;
  }

  std::string marks() const {
    constexpr double kWide = 22, kHigh = 12;  // of a mark
    std::string out;
    std::vector<Point> marked;
    for (const ParetoDot& dot : chart_.dots) {
      if (dot.mark.empty()) continue;
      // Towards better choices, where few dots are.
      const Point where{at(dot).x - 7, at(dot).y + (chart_.less_is_better ? 15 : -7)};
      // A number on another one cannot be read; the dots have their words as tooltips.
      const bool covers = std::any_of(marked.begin(), marked.end(), [&](Point other) {
        return std::abs(other.x - where.x) < kWide && std::abs(other.y - where.y) < kHigh;
      });
      if (covers) continue;
      if (marked.size() == kMostMarks) break;
      marked.push_back(where);
      out += svg_text("state", where, dot.mark, "end");
    }
    return out;
  }

  const ParetoChart& chart_;
  double width_;
  Box plot_;
  Axis x_, y_;
};

// Empty without dots. An axis is logarithmic if its numbers are far apart.
std::string pareto_chart(const ParetoChart& chart) {
  if (chart.dots.empty()) return {};
  return element("figure", "",
                 element("div", "roomy", ParetoDrawing(chart, kParetoWidth).str()) +
                     element("div", "narrow", ParetoDrawing(chart, kParetoNarrow).str()));
}

}  // namespace
}  // namespace lockstep::reports::html

namespace lockstep::reports {
namespace {

// Bounds, so that a browser opens the page quickly.
constexpr std::size_t kMostDots = 2000;
constexpr std::size_t kMostPlans = 1000;
constexpr std::size_t kBest = 10;         // shown first, with the front
constexpr std::size_t kMostChoices = 12;  // values that a column offers to choose from
constexpr std::size_t kMostReasons = 100;

class SweepPage {
 public:
  explicit SweepPage(const Summary& summary)
      : summary_(summary),
        ranking_(sim::rank(summary.rows, summary.goal)),
        worlds_differ_(worlds().size() > 1),
        columns_(plan_columns()) {}

  std::string str() const {
    return html::result_page(
        "sweep", summary_.scenario,
        html::element("p", "", fmt::format("{}.", html::sentence(tried_text(summary_)))) +
            figures(),
        html::card("The Pareto front and the ten best", best()) + html::card("Hang", hanging()) +
            html::card("Every plan", every_plan()) +
            html::card("Refused", reasons(ranking_.refused)) +
            html::card("Failed", reasons(ranking_.failed)),
        html::Scripts::explore);
  }

 private:
  // The numbers of ranks of the plans, as far as known.
  std::set<std::int64_t> worlds() const {
    std::set<std::int64_t> out;
    for (const sim::Row& row : summary_.rows)
      if (row.ranks > 0) out.insert(row.ranks);
    return out;
  }

  std::string figures() const {
    std::vector<html::NamedFigure> out = {{"sorted by", objective_text(summary_.goal.objective)}};
    if (summary_.goal.memory_limit)
      out.push_back({"memory of a rank at most", bytes_text(*summary_.goal.memory_limit)});
    if (const std::set<std::int64_t> ranks = worlds(); ranks.size() == 1)
      out.push_back({"ranks", grouped(static_cast<std::uint64_t>(*ranks.begin()))});
    out.push_back({"fit", grouped(ranking_.fitting.size())});
    out.push_back({"do not fit", grouped(ranking_.too_large.size())});
    out.push_back({"hang", grouped(ranking_.hanging.size())});
    out.push_back({"refused", grouped(ranking_.refused.size())});
    if (!ranking_.failed.empty()) out.push_back({"failed", grouped(ranking_.failed.size())});
    return html::figures(out);
  }

  double value(const sim::Row& row) const {
    switch (summary_.goal.objective) {
      case sim::Objective::step_time:
        return row.step_seconds;
      case sim::Objective::samples_per_second:
        return row.samples_per_second;
      case sim::Objective::samples_per_second_per_rank:
        return row.samples_per_second_per_rank();
    }
    return 0;
  }
  std::string value_text(double value) const {
    return summary_.goal.objective == sim::Objective::step_time ? duration_text(value)
                                                                : number_text(value);
  }

  html::ParetoDot dot(std::size_t row, const std::string& mark) const {
    using Kind = html::ParetoDot::Kind;
    const sim::Row& one = summary_.rows[row];
    const Kind kind = ranking_.on_front[row] ? Kind::front
                      // The front has only plans that fit, so what is left and fits is beaten.
                      : sim::fits(one, summary_.goal) ? Kind::beaten
                                                      : Kind::too_large;
    return {one.memory_bytes, value(one), kind,
            fmt::format("{}: {} {}, {}, {}", point_text(summary_, one),
                        objective_text(summary_.goal.objective), value_text(value(one)),
                        bytes_text(one.memory_bytes), plural(one.ranks, "rank")),
            kind == Kind::front ? mark : ""};
  }

  std::string chart() const {
    const std::string objective = objective_text(summary_.goal.objective);
    html::ParetoChart out{fmt::format("Plans by memory of a rank and {}", objective),
                          "memory of a rank",
                          objective,
                          [](double bytes) { return bytes_text(bytes); },
                          [this](double value) { return value_text(value); },
                          {},
                          summary_.goal.objective == sim::Objective::step_time};
    std::size_t drawn = 0;
    for (const auto* rows : {&ranking_.fitting, &ranking_.too_large}) {
      for (std::size_t i = 0; i < rows->size(); ++i) {
        const std::size_t row = (*rows)[i];
        // The front is drawn whole, as it is what the chart is for; of the rest the best come
        // first.
        if (drawn >= kMostDots && !ranking_.on_front[row]) continue;
        ++drawn;
        out.dots.push_back(dot(row, std::to_string(i + 1)));
      }
    }
    if (out.dots.empty()) return {};
    return html::element(
               "p", "caption",
               html::text(fmt::format(
                   "Filled: no plan that fits is as good in {}, memory of a rank and number of "
                   "ranks, and better in one of them; the number is its place. Ringed: "
                   "beaten. Dashed: does not fit.",
                   objective))) +
           html::pareto_chart(out) +
           html::element("p", "caption", html::text(fmt::format("{}.", memory_text(summary_))));
  }

  std::string verdict(std::size_t row) const {
    const sim::Row& one = summary_.rows[row];
    if (one.outcome != sim::Outcome::trains) return std::string(sim::to_string(one.outcome));
    return ranking_.on_front[row] ? "front" : sim::fits(one, summary_.goal) ? "" : "does not fit";
  }

  // Adds a row; `place`: among those that fit, from 1; 0: none.
  void add(Table& table, std::size_t place, std::size_t row) const {
    const sim::Row& one = summary_.rows[row];
    const bool trains = one.outcome == sim::Outcome::trains;
    std::vector<std::string> cells = {place > 0 ? std::to_string(place) : ""};
    RowLook look{{}, one.outcome == sim::Outcome::hangs ? "error" : "", {std::nullopt}};
    for (std::string& value : value_cells(summary_, one)) cells.push_back(std::move(value));
    for (const std::string& key : summary_.keys) {
      const auto found = one.values.find(key);
      // Sorted as numbers, so that 8 comes before 16; the first cell is the place, which needs
      // none.
      look.values.push_back(found != one.values.end() && found->is_number()
                                ? std::optional<double>(found->get<double>())
                                : std::nullopt);
    }
    look.values.resize(cells.size());
    // What does not train has no figures, not zeros.
    const auto figure = [&](bool known, double number, std::string words) {
      cells.push_back(known ? std::move(words) : "");
      look.values.push_back(known ? std::optional<double>(number) : std::nullopt);
    };
    if (worlds_differ_)
      figure(one.ranks > 0, static_cast<double>(one.ranks), std::to_string(one.ranks));
    figure(trains, one.step_seconds, duration_text(one.step_seconds));
    figure(trains, one.samples_per_second, number_text(one.samples_per_second));
    figure(trains, one.memory_bytes, bytes_text(one.memory_bytes));
    if (one.transformer)
      figure(trains, one.transformer->mfu, percent(one.transformer->mfu));
    else
      figure(trains, one.sent_bytes, bytes_text(one.sent_bytes));
    cells.push_back(verdict(row));
    table.add(std::move(cells), std::move(look));
  }

  // Of the tables of plans.
  std::vector<Column> plan_columns() const {
    std::vector<Column> all = {{"place", Column::number}};
    const std::vector<std::string> heads = value_heads(summary_);
    std::vector<std::set<std::string>> values(heads.size());
    for (const sim::Row& row : summary_.rows) {
      const std::vector<std::string> cells = value_cells(summary_, row);
      for (std::size_t k = 0; k < cells.size(); ++k)
        // One more than can be chosen from is enough to know that there are too many.
        if (values[k].size() <= kMostChoices) values[k].insert(cells[k]);
    }
    for (std::size_t k = 0; k < heads.size(); ++k)
      all.push_back({heads[k], Column::code, values[k].size() <= kMostChoices});
    if (worlds_differ_) all.push_back({"ranks", Column::number});
    for (const char* head : {"step", "samples/s", "memory"}) all.push_back({head, Column::number});
    all.push_back({summary_.transformers ? "MFU" : "sent", Column::number});
    all.push_back({"verdict", Column::mark, true});
    return all;
  }

  // `where`: the others are.
  static std::string more(std::size_t count, const char* where) {
    return count == 0
               ? ""
               : html::element("p", "caption", fmt::format("{} more: {}", grouped(count), where));
  }

  std::string best() const {
    // The chart still shows how far off the plans are that do not fit.
    if (ranking_.fitting.empty()) return chart();
    Table table(columns_);
    std::size_t of_front = 0, left_out = 0;
    for (std::size_t i = 0; i < ranking_.fitting.size(); ++i) {
      const std::size_t row = ranking_.fitting[i];
      if (i >= kBest && !ranking_.on_front[row]) continue;
      // As many as have a number in the chart: what the eye finds there is in this table.
      if (i >= kBest && ++of_front > html::kMostMarks) {
        ++left_out;
        continue;
      }
      add(table, i + 1, row);
    }
    return chart() + table.html("the front and the ten best") +
           more(left_out, "in the list of every plan");
  }

  std::string hanging() const {
    const std::string all = reasons(ranking_.hanging);
    if (all.empty()) return all;
    return html::element(
               "p", "",
               html::text(fmt::format(
                   "{} no step: whatever the timing, ranks wait for each other or for a "
                   "call that never comes.",
                   plural(ranking_.hanging.size(), "of these plans ends", "of these plans end")))) +
           all;
  }

  std::string every_plan() const {
    Table table(columns_);
    std::size_t shown = 0;
    for (std::size_t i = 0; i < ranking_.fitting.size(); ++i) {
      if (shown >= kMostPlans && !ranking_.on_front[ranking_.fitting[i]]) continue;
      ++shown;
      add(table, i + 1, ranking_.fitting[i]);
    }
    for (const auto* rows :
         {&ranking_.too_large, &ranking_.hanging, &ranking_.refused, &ranking_.failed})
      for (std::size_t i = 0; i < rows->size() && shown < kMostPlans; ++i, ++shown)
        add(table, 0, (*rows)[i]);
    return table.empty() ? ""
                         : table.html("every plan", "explore") +
                               more(summary_.rows.size() - shown, "--output csv=FILE has them all");
  }

  std::string reasons(const std::vector<std::size_t>& rows) const {
    std::string out;
    const std::vector<Reason> all = by_reason(summary_, rows);
    for (std::size_t i = 0; i < std::min(all.size(), kMostReasons); ++i)
      out += fmt::format(
          "<li>{}<br>{}</li>\n",
          html::text(fmt::format("{} × {}", grouped(all[i].rows.size()), all[i].text)),
          html::element("span", "soft small",
                        (all[i].rows.size() > 1 ? "first: " : "") +
                            html::code(point_text(summary_, summary_.rows[all[i].rows.front()]))));
    return out.empty() ? out : html::element("ul", "plain", out);
  }

  const Summary& summary_;
  sim::Ranking ranking_;
  bool worlds_differ_;  // else the number of ranks stands above, once
  std::vector<Column> columns_;
};

}  // namespace

std::string sweep_html(const Summary& summary) { return SweepPage(summary).str(); }

}  // namespace lockstep::reports
