// The page of a sweep: what was tried, the Pareto front as a chart, and the tables.
#include "reports/html/page.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/quantities.h"
#include "base/tables.h"
#include "base/text.h"
#include "reports/html/markup.h"
#include "reports/sweeps/pareto_chart.h"
#include "reports/sweeps/report.h"
#include "reports/table.h"

namespace lockstep::reports {
namespace {

// Bounds, so that a browser opens the page quickly.
constexpr std::size_t kMaxDots = 2000;
constexpr std::size_t kMaxPlans = 1000;
constexpr std::size_t kBest = 10;        // shown first, with the front
constexpr std::size_t kMaxChoices = 12;  // values that a column offers to choose from
constexpr std::size_t kMaxReasons = 100;

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
            html::card("Wrong results", reasons(ranking_.wrong)) +
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
    if (!ranking_.wrong.empty()) out.push_back({"wrong", grouped(ranking_.wrong.size())});
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
        if (drawn >= kMaxDots && !ranking_.on_front[row]) continue;
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
           html::pareto_chart(std::move(out)) +
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
    RowLook look{{}, sim::is_defect(one.outcome) ? "error" : "", {std::nullopt}};
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

  // The columns of tables of plans.
  std::vector<Column> plan_columns() const {
    std::vector<Column> all = {{"place", Column::number}};
    const std::vector<std::string> heads = value_heads(summary_);
    std::vector<std::set<std::string>> values(heads.size());
    for (const sim::Row& row : summary_.rows) {
      const std::vector<std::string> cells = value_cells(summary_, row);
      for (std::size_t k = 0; k < cells.size(); ++k)
        // One more than can be chosen from is enough to know that there are too many.
        if (values[k].size() <= kMaxChoices) values[k].insert(cells[k]);
    }
    for (std::size_t k = 0; k < heads.size(); ++k)
      all.push_back({heads[k], Column::code, values[k].size() <= kMaxChoices});
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
      if (i >= kBest && ++of_front > html::kMaxMarks) {
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
      if (shown >= kMaxPlans && !ranking_.on_front[ranking_.fitting[i]]) continue;
      ++shown;
      add(table, i + 1, ranking_.fitting[i]);
    }
    for (const auto* rows : {&ranking_.too_large, &ranking_.hanging, &ranking_.wrong,
                             &ranking_.refused, &ranking_.failed})
      for (std::size_t i = 0; i < rows->size() && shown < kMaxPlans; ++i, ++shown)
        add(table, 0, (*rows)[i]);
    return table.empty() ? ""
                         : table.html("every plan", "explore") +
                               more(summary_.rows.size() - shown, "--output csv=FILE has them all");
  }

  std::string reasons(const std::vector<std::size_t>& rows) const {
    std::string out;
    const std::vector<Reason> all = by_reason(summary_, rows);
    for (std::size_t i = 0; i < std::min(all.size(), kMaxReasons); ++i)
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
