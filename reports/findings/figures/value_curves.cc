// Curves of recorded values over the steps: the loss, and norms of gradients and parameters. Ranks
// with equal curves share a line; steps in which ranks differ are marked.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "base/tables.h"
#include "base/text.h"
#include "reports/findings/figures/figures.h"
#include "reports/findings/finding_words.h"
#include "reports/html/markup.h"
#include "reports/html/svg.h"
#include "verify/numbers/value_table.h"

namespace lockstep::reports {
namespace {

constexpr std::size_t kMaxCurves = 4;

std::string_view phase_name(verify::Phase phase) {
  switch (phase) {
    case verify::Phase::leftover:
      return "gradient before backward";
    case verify::Phase::local_grad:
      return "gradient before synchronisation";
    case verify::Phase::synced_grad:
      return "gradient after synchronisation";
    case verify::Phase::other_grad:
      return "gradient";
    case verify::Phase::optim:
      return "optimizer state";
    case verify::Phase::param:
      return "parameter";
    case verify::Phase::buffer:
      return "buffer";
  }
  return "";
}

bool ought_to_agree(const verify::ValueRow& row) {
  // Gradients before synchronisation belong to one rank's batch; shards to one rank's part.
  return row.phase != verify::Phase::leftover && row.phase != verify::Phase::local_grad &&
         !row.sharded();
}

// Two ranks are compared by hash if both recorded one, else by norm.
bool differ(const verify::ValueRow& row) {
  const trace::StateMark& first = *row.readings.front().mark;
  return std::any_of(row.readings.begin(), row.readings.end(), [&](const verify::Reading& reading) {
    const trace::StateMark& mark = *reading.mark;
    if (first.hash && mark.hash) return *first.hash != *mark.hash;
    return first.norm && mark.norm && *first.norm != *mark.norm;
  });
}

std::optional<std::int64_t> first_difference(const verify::Series& series) {
  for (const verify::ValueRow* row : series.rows)
    if (ought_to_agree(*row) && differ(*row)) return row->n;
  return std::nullopt;
}

using Points = std::vector<std::pair<std::int64_t, double>>;

// Folds equal curves into one; those of most ranks first.
void fold_curves(const std::map<trace::Rank, Points>& of_rank, ValueCurves& out) {
  std::map<Points, std::vector<trace::Rank>> folded;
  for (const auto& [rank, points] : of_rank) folded[points].push_back(rank);
  for (const auto& [points, ranks] : folded) {
    Curve& curve = out.curves.emplace_back();
    curve.ranks = ranks;
    for (const auto& [n, value] : points) curve.points.push_back({n, value});
  }
  std::stable_sort(out.curves.begin(), out.curves.end(), [](const Curve& a, const Curve& b) {
    return std::tuple(b.ranks.size(), a.ranks.front()) <
           std::tuple(a.ranks.size(), b.ranks.front());
  });
  if (out.curves.size() <= kMaxCurves) return;
  out.curves_left_out = out.curves.size() - kMaxCurves;
  out.curves.resize(kMaxCurves);
}

ValueCurves curves_of(const verify::Series& series, const trace::Run& run) {
  ValueCurves out;
  out.name = run.tables.str(series.name);
  out.kind = phase_name(series.phase);
  std::map<trace::Rank, Points> of_rank;
  for (const verify::ValueRow* row : series.rows) {
    for (const verify::Reading& reading : row->readings)
      if (reading.mark->norm && std::isfinite(*reading.mark->norm))
        of_rank[run.ranks[reading.rank].rank].emplace_back(row->n, *reading.mark->norm);
    if (row->readings.size() > 1 && ought_to_agree(*row))
      out.agreement.push_back({row->n, !differ(*row)});
  }
  fold_curves(of_rank, out);
  out.first_difference = first_difference(series);
  return out;
}

std::optional<ValueCurves> loss_of(const trace::Run& run) {
  struct Sum {
    double sum = 0;
    std::size_t count = 0;
  };
  std::map<std::int64_t, Sum> steps;
  Curve curve;
  for (const trace::RankTrace& trace : run.ranks) {
    bool any = false;
    for (const trace::StepMark& step : trace.steps) {
      if (!step.loss || !std::isfinite(*step.loss)) continue;
      any = true;
      steps[step.n].sum += *step.loss;
      ++steps[step.n].count;
    }
    if (any) curve.ranks.push_back(trace.rank);
  }
  if (steps.empty()) return std::nullopt;
  for (const auto& [n, step] : steps)
    curve.points.push_back({n, step.sum / static_cast<double>(step.count)});
  return ValueCurves{"loss", "mean over the ranks", {std::move(curve)}, 0, {}, std::nullopt};
}

// The mean of the ranks' own gradients, and what the synchronisation made of it: their 2-norms, as
// the sketches estimate them alike. Nothing where some rank recorded no sketch.
std::optional<ValueCurves> mean_and_result(const verify::ValueTable& table,
                                           const verify::Series& synced, const trace::Run& run) {
  ValueCurves out;
  out.name = run.tables.str(synced.name);
  out.kind = "gradient: the ranks' mean, and the result";
  Curve mean{"mean of the ranks' own", {}, {}};
  std::map<trace::Rank, Points> results;
  for (const verify::ValueRow* row : synced.rows) {
    const verify::ValueRow* const own = table.row(verify::Phase::local_grad, row->name, row->n);
    if (own == nullptr || row->sharded()) return std::nullopt;
    verify::Sketch total;
    for (const verify::Reading& reading : row->readings) {
      const trace::StateMark* const local = own->of(reading.rank);
      const std::size_t size = row->readings.front().mark->sketch.size();
      const double result = verify::norm_estimate(reading.mark->sketch);
      if (size == 0 || reading.mark->sketch.size() != size || !std::isfinite(result))
        return std::nullopt;
      results[run.ranks[reading.rank].rank].emplace_back(row->n, result);
      if (local == nullptr) continue;  // it had no gradient: zero
      if (local->sketch.size() != size) return std::nullopt;
      total = total.empty() ? local->sketch : verify::sum(std::move(total), local->sketch);
    }
    const double norm = verify::norm_estimate(total) / static_cast<double>(row->readings.size());
    if (!std::isfinite(norm)) return std::nullopt;
    mean.points.push_back({row->n, norm});
  }
  fold_curves(results, out);
  for (Curve& curve : out.curves)
    curve.label = fmt::format("result on {}", rank_label(curve.ranks, 24));
  out.curves.insert(out.curves.begin(), std::move(mean));
  return out;
}

std::set<std::string> named_by(const verify::Report& report) {
  std::set<std::string> out;
  for (const verify::Finding& finding : report.findings)
    if (verify::rule(finding.rule).family == "numbers")
      out.insert(finding.what.begin(), finding.what.end());
  return out;
}

}  // namespace

std::vector<ValueCurves> value_curves(const verify::Report& report, const trace::Run& run,
                                      std::size_t most) {
  std::vector<ValueCurves> out;
  if (std::optional<ValueCurves> loss = loss_of(run)) out.push_back(std::move(*loss));
  const verify::ValueTable table(run);
  const std::set<std::string> named = named_by(report);
  // Tensors that a finding names first, then by the first step in which ranks differ, then in the
  // table's order.
  std::set<std::uint32_t> compared;
  for (const verify::Series& series : table.series()) {
    // At most half of the charts: what else differs is to be seen as well.
    if (series.phase != verify::Phase::synced_grad || 2 * compared.size() >= most) continue;
    if (!named.contains(run.tables.str(series.name))) continue;
    std::optional<ValueCurves> both = mean_and_result(table, series, run);
    if (!both) continue;
    compared.insert(series.name.value);
    out.push_back(std::move(*both));
  }
  const std::size_t left = most - compared.size();
  using Key = std::tuple<bool, std::int64_t, std::size_t>;
  std::vector<std::pair<Key, const verify::Series*>> order;
  for (const verify::Series& series : table.series()) {
    const bool is_named = named.contains(run.tables.str(series.name));
    order.push_back(
        {{!is_named, first_difference(series).value_or(INT64_MAX), order.size()}, &series});
  }
  std::sort(order.begin(), order.end());
  std::erase_if(order, [&](const auto& one) {
    const verify::Phase phase = one.second->phase;
    return compared.contains(one.second->name.value) &&
           (phase == verify::Phase::local_grad || phase == verify::Phase::synced_grad);
  });
  for (std::size_t i = 0; i < std::min(left, order.size()); ++i)
    out.push_back(curves_of(*order[i].second, run));
  return out;
}

}  // namespace lockstep::reports

namespace lockstep::reports::html {
namespace {

constexpr double kValuesWidth = 320;
constexpr double kValuesLeft = 58;  // room for the numbers of the axis
constexpr double kValuesTop = 8;
constexpr double kValuesPlot = 110;  // height
constexpr double kStrip = 8;         // height of the agreement strip
constexpr std::size_t kMaxValuePoints = 160;
constexpr std::size_t kMaxCells = 80;

// Three digits.
std::string number(double value) {
  std::array<char, 32> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 std::chars_format::general, 3);
  return {buffer.data(), end.ptr};
}

struct Range {
  double low = INFINITY, high = -INFINITY;

  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
  // Position from 0 to 1; the middle if there is only one value.
  double fraction(double value) const { return high > low ? (value - low) / (high - low) : .5; }
};

class ValueChart {
 public:
  explicit ValueChart(const ValueCurves& curves) : curves_(curves) {
    for (const Curve& curve : curves.curves) {
      for (const CurvePoint& point : curve.points) {
        steps_.add(static_cast<double>(point.n));
        values_.add(point.value);
      }
    }
    for (const auto& step : curves.agreement) steps_.add(static_cast<double>(step.n));
    if (!values_.empty()) left_ = kValuesLeft;
  }

  std::string str() const {
    if (steps_.empty()) return {};
    const double plot = values_.empty() ? 0 : kValuesPlot;
    double y = kValuesTop + plot;
    std::string content = values_.empty() ? "" : axes() + lines();
    if (!curves_.agreement.empty()) {
      y += 8;
      content += strip(y);
      y += kStrip;
    }
    y += 16;
    content += svg_text("note", {left_, y}, fmt::format("step {}", number(steps_.low)));
    content += svg_text("note", {kValuesWidth - 4, y}, number(steps_.high), "end");
    return element("figure", "",
                   element("h3", "", fmt::format("{} {}", code(curves_.name), text(curves_.kind))) +
                       svg_picture(summary(), kValuesWidth, y + 6, content) + legend());
  }

 private:
  Point at(const CurvePoint& point) const {
    return {x_of(static_cast<double>(point.n)),
            kValuesTop + kValuesPlot * (1 - values_.fraction(point.value))};
  }
  double x_of(double n) const { return left_ + (kValuesWidth - 8 - left_) * steps_.fraction(n); }

  std::string axes() const {
    std::string out = svg_line("axis", {left_, kValuesTop}, {left_, kValuesTop + kValuesPlot}) +
                      svg_line("axis", {left_, kValuesTop + kValuesPlot},
                               {kValuesWidth - 4, kValuesTop + kValuesPlot});
    if (values_.high > values_.low) {
      out += svg_text("note", {left_ - 7, kValuesTop + 9}, number(values_.high), "end");
      out += svg_text("note", {left_ - 7, kValuesTop + kValuesPlot}, number(values_.low), "end");
    } else {
      out += svg_text("note", {left_ - 7, kValuesTop + kValuesPlot / 2 + 4}, number(values_.low),
                      "end");
    }
    if (curves_.first_difference) {
      const double x = x_of(static_cast<double>(*curves_.first_difference));
      out += svg_line("mark", {x, kValuesTop}, {x, kValuesTop + kValuesPlot});
    }
    return out;
  }

  std::string lines() const {
    std::string out;
    for (std::size_t c = 0; c < curves_.curves.size(); ++c) {
      const std::vector<CurvePoint>& points = curves_.curves[c].points;
      // Every stride-th point: more than kMaxValuePoints cannot be told apart in 320 pixels.
      const std::size_t stride = points.size() / kMaxValuePoints + 1;
      std::string data;
      for (std::size_t i = 0; i < points.size(); i += stride)
        data += fmt::format("{}{},{}", data.empty() ? "" : " ", px(at(points[i]).x),
                            px(at(points[i]).y));
      // A polyline of one point is invisible.
      if (points.size() == 1) {
        const Point only = at(points[0]);
        data += fmt::format(" {},{}", px(only.x + 3), px(only.y));
      }
      out += fmt::format(R"(<polyline class="curve s{}" points="{}"/>)", c, data);
    }
    return out;
  }

  // A cell per step, or per several steps if there are many: red if ranks differed in any of them.
  std::string strip(double y) const {
    const std::size_t cells = std::min(kMaxCells, curves_.agreement.size());
    const double width = (kValuesWidth - 4 - left_) / static_cast<double>(cells);
    std::string out;
    for (std::size_t c = 0; c < cells; ++c) {
      const std::size_t begin = c * curves_.agreement.size() / cells;
      const std::size_t end = (c + 1) * curves_.agreement.size() / cells;
      bool agree = true;
      for (std::size_t i = begin; i < end; ++i) agree = agree && curves_.agreement[i].agree;
      // Differing cells are also higher, for people who cannot distinguish the colours.
      out += svg_rect(agree ? "same" : "differ",
                      {left_ + static_cast<double>(c) * width, agree ? y + 3 : y,
                       std::max(1.0, width - 1), agree ? kStrip - 3 : kStrip},
                      0);
    }
    return out;
  }

  std::string summary() const {
    std::string out = fmt::format("{}, {}", curves_.name, curves_.kind);
    if (!values_.empty())
      out += fmt::format(", between {} and {}", number(values_.low), number(values_.high));
    if (curves_.first_difference)
      out += fmt::format("; ranks differ from step {}", *curves_.first_difference);
    else if (!curves_.agreement.empty())
      out += "; ranks agree in every step";
    return out;
  }

  std::string legend() const {
    std::string out;
    if (curves_.curves.size() > 1) {
      for (std::size_t c = 0; c < curves_.curves.size(); ++c)
        out += fmt::format(
            R"(<span><svg aria-hidden="true" width="28" height="6" viewBox="0 0 28 6">{}</svg>{}</span>)",
            svg_line(fmt::format("curve s{}", c), {0, 3}, {28, 3}),
            text(curves_.curves[c].label.empty() ? rank_label(curves_.curves[c].ranks, 30)
                                                 : curves_.curves[c].label));
      if (curves_.curves_left_out > 0)
        out += element("span", "", text(plural(curves_.curves_left_out, "more curve")));
    } else if (!curves_.curves.empty()) {
      out += element("span", "", text(rank_label(curves_.curves[0].ranks, 30)));
    }
    if (curves_.first_difference)
      out +=
          element("span", "", fmt::format("ranks differ from step {}", *curves_.first_difference));
    else if (!curves_.agreement.empty())
      out += element("span", "", "ranks agree");
    return element("div", "legend", out);
  }

  const ValueCurves& curves_;
  Range steps_, values_;
  double left_ = 0;  // of the plot
};

}  // namespace

std::string value_charts(const std::vector<ValueCurves>& all) {
  std::string out;
  for (const ValueCurves& curves : all) out += ValueChart(curves).str();
  return out.empty() ? out : element("div", "charts", out);
}

}  // namespace lockstep::reports::html
