#include "reports/html/charts.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "base/tables.h"
#include "reports/html/markup.h"
#include "reports/html/svg.h"

namespace lockstep::reports::html {
namespace {

constexpr double kBar = 16, kStackHeight = 180;
constexpr std::size_t kMaxColumns = 120, kMaxStackPoints = 360;

std::string look(const Series& series) { return fmt::format("f f{}", series.look); }

double sum(const std::vector<double>& parts) {
  return std::accumulate(parts.begin(), parts.end(), 0.0);
}

std::string series_legend(const std::vector<Series>& series) {
  std::string out;
  for (const Series& one : series)
    out += fmt::format(
        R"(<span><svg aria-hidden="true" width="12" height="12" viewBox="0 0 12 12">{}</svg>{}</span>)",
        svg_rect(look(one), {0, 0, 12, 12}, 2), text(one.name));
  return element("div", "legend squares", out);
}

// A plot from 0 to `most`, as wide as there is room: its labels stand around the picture.
std::string plot(const std::string& label, const std::string& content, double most,
                 const NumberFormat& format, const std::string& first, const std::string& last,
                 const std::vector<Series>& series) {
  const std::string axes = svg_line("axis", {0, 0}, {0, kStackHeight}) +
                           svg_line("axis", {0, kStackHeight}, {kStripWidth, kStackHeight});
  const std::string ends = element("span", "", text(first)) + element("span", "", text(last));
  return element("figure", "wide",
                 strips(label, svg_strip(fmt::format("{} to {}", format(0), format(most)),
                                         kStackHeight, axes + content) +
                                   element("div", "times ends", ends)) +
                     series_legend(series));
}

// Averages neighbouring columns if there are too many.
std::vector<std::vector<double>> thinned(const std::vector<std::vector<double>>& columns) {
  if (columns.size() <= kMaxColumns) return columns;
  std::vector<std::vector<double>> out;
  for (std::size_t c = 0; c < kMaxColumns; ++c) {
    const std::size_t begin = c * columns.size() / kMaxColumns;
    const std::size_t end = (c + 1) * columns.size() / kMaxColumns;
    std::vector<double> mean(columns[begin].size(), 0);
    for (std::size_t i = begin; i < end; ++i)
      for (std::size_t s = 0; s < mean.size(); ++s)
        mean[s] += columns[i][s] / static_cast<double>(end - begin);
    out.push_back(std::move(mean));
  }
  return out;
}

// Keeps the largest of neighbouring points if there are too many, so that peaks stay visible; it
// begins where the first of them does.
std::vector<AreaPoint> thinned(const std::vector<AreaPoint>& points) {
  if (points.size() <= kMaxStackPoints) return points;
  std::vector<AreaPoint> out;
  for (std::size_t c = 0; c < kMaxStackPoints; ++c) {
    const auto begin =
        points.begin() + static_cast<std::ptrdiff_t>(c * points.size() / kMaxStackPoints);
    const auto end =
        points.begin() + static_cast<std::ptrdiff_t>((c + 1) * points.size() / kMaxStackPoints);
    out.push_back(*std::max_element(begin, end, [](const AreaPoint& a, const AreaPoint& b) {
      return sum(a.parts) < sum(b.parts);
    }));
    out.back().x = begin->x;
  }
  return out;
}

}  // namespace

std::string stacked_bars(const std::string& label, const std::vector<Series>& series,
                         const std::vector<StackedBar>& bars, double whole) {
  std::string rows;
  for (const StackedBar& bar : bars) {
    std::string content;
    double x = 0;
    for (std::size_t s = 0; s < bar.parts.size(); ++s) {
      const double width = whole > 0 ? kStripWidth * bar.parts[s] / whole : 0;
      // Thinner than a twentieth of a pixel: invisible.
      if (width >= .05) content += svg_rect(look(series[s]), {x, 0, width, kBar}, 0);
      x += width;
    }
    rows += svg_strip(bar.label, kBar, content);
  }
  return element("figure", "wide", strips(label, rows) + series_legend(series));
}

std::string stacked_columns(const std::string& label, const std::vector<Series>& series,
                            const std::vector<std::vector<double>>& columns,
                            const NumberFormat& format, const std::string& first,
                            const std::string& last) {
  const std::vector<std::vector<double>> shown = thinned(columns);
  double most = 0;
  for (const std::vector<double>& parts : shown) most = std::max(most, sum(parts));
  std::string content;
  const double width = kStripWidth / static_cast<double>(std::max<std::size_t>(1, shown.size()));
  for (std::size_t c = 0; c < shown.size(); ++c) {
    double y = kStackHeight;
    for (std::size_t s = 0; s < shown[c].size(); ++s) {
      const double height = most > 0 ? kStackHeight * shown[c][s] / most : 0;
      y -= height;
      if (height >= .05)
        content += svg_rect(look(series[s]),
                            {static_cast<double>(c) * width, y,
                             std::max(1.0, width - (width > 4 ? 1.5 : 0)), height},
                            0);
    }
  }
  return plot(label, content, most, format, first, last, series);
}

std::string stacked_areas(const std::string& label, const std::vector<Series>& series,
                          const std::vector<AreaPoint>& points, double end, double limit,
                          const NumberFormat& format, const NumberFormat& x_format) {
  const std::vector<AreaPoint> shown = thinned(points);
  if (shown.empty()) return {};
  double most = limit;
  for (const AreaPoint& point : shown) most = std::max(most, sum(point.parts));
  const double begin = shown.front().x;
  const auto x_of = [&](double x) {
    return end > begin ? kStripWidth * (x - begin) / (end - begin) : 0;
  };
  const auto y_of = [&](double y) { return kStackHeight * (1 - (most > 0 ? y / most : 0)); };
  std::string content;
  // The height of the series below, by point. A polygon follows the upper edge from left to right
  // and the lower edge back.
  std::vector<double> below(shown.size(), 0);
  for (std::size_t s = 0; s < series.size(); ++s) {
    std::string upper, lower;
    bool any = false;
    for (std::size_t i = 0; i < shown.size(); ++i) {
      const double from = x_of(shown[i].x);
      const double to = x_of(i + 1 < shown.size() ? shown[i + 1].x : end);
      const double low = y_of(below[i]);
      below[i] += shown[i].parts[s];
      any = any || shown[i].parts[s] > 0;
      const double high = y_of(below[i]);
      // Along the upper edge from left to right, and back along the lower one.
      upper += fmt::format("{0},{2} {1},{2} ", px(from), px(to), px(high));
      lower = fmt::format("{1},{2} {0},{2} {3}", px(from), px(to), px(low), lower);
    }
    if (any)
      content +=
          fmt::format(R"(<polygon class="{}" points="{}{}"/>)", look(series[s]), upper, lower);
  }
  if (limit > 0) content += svg_line("mark", {0, y_of(limit)}, {kStripWidth, y_of(limit)});
  return plot(label, content, most, format, x_format(begin), x_format(end), series);
}

std::string signed_bars(const std::string& label, const std::vector<SignedBar>& bars) {
  double most = 0;
  bool negative = false;
  for (const SignedBar& bar : bars) {
    most = std::max(most, std::abs(bar.value));
    negative = negative || bar.value < 0;
  }
  // The left side is shorter: negative bars are cut there, the text has the number.
  const double middle = negative ? kStripWidth / 5.0 : 0;
  std::string rows;
  for (const SignedBar& bar : bars) {
    const double room = bar.value < 0 ? middle : kStripWidth - middle;
    const double width =
        most > 0 ? std::min(room, (kStripWidth - middle) * std::abs(bar.value) / most) : 0;
    std::string content = svg_line("axis", {middle, 0}, {middle, kBar});
    if (width >= .05)
      content += svg_rect(bar.value < 0 ? "f f1" : "f f0",
                          {bar.value < 0 ? middle - width : middle, 0, width, kBar}, 0);
    rows += element("span", "what", text(bar.label)) + stretched(kBar, content) +
            element("span", "n", text(bar.text));
  }
  return element(
      "figure", "wide",
      fmt::format(R"(<div class="bars" role="group" aria-label="{}">{}</div>)", text(label), rows));
}

namespace {

constexpr std::size_t kColumns = 1000;             // of the width
constexpr double kLane = 16, kGap = 1, kThin = 6;  // heights

// The boxes of a row by series, each of whole columns.
std::vector<std::vector<Box>> drawn(const std::vector<GanttBox>& row, std::size_t series,
                                    double end, double y, double height) {
  std::vector<std::vector<double>> taken(kColumns, std::vector<double>(series, 0));
  const double scale = end > 0 ? static_cast<double>(kColumns) / end : 0;
  for (const GanttBox& box : row) {
    const double from = std::max(0.0, box.begin * scale);
    const double to = std::min(static_cast<double>(kColumns), box.end * scale);
    for (auto c = static_cast<std::size_t>(from); static_cast<double>(c) < to; ++c) {
      const auto left = static_cast<double>(c);
      taken[c][box.series] += std::min(to, left + 1) - std::max(from, left);
    }
  }
  std::vector<std::vector<Box>> out(series);
  for (std::size_t c = 0; c < kColumns; ++c) {
    double all = 0;
    for (const double part : taken[c]) all += part;
    if (all < .5) continue;
    const auto most = static_cast<std::size_t>(std::max_element(taken[c].begin(), taken[c].end()) -
                                               taken[c].begin());
    const auto x = static_cast<double>(c);
    std::vector<Box>& boxes = out[most];
    if (!boxes.empty() && boxes.back().right().x == x)
      boxes.back().width += 1;
    else
      boxes.push_back({x, y, 1, height});
  }
  return out;
}

std::string lane_picture(const GanttLane& lane, const std::vector<Series>& series, double end) {
  std::string content;
  const auto draw = [&](const std::vector<GanttBox>& row, double y, double height) {
    const std::vector<std::vector<Box>> boxes = drawn(row, series.size(), end, y, height);
    for (std::size_t s = 0; s < boxes.size(); ++s)
      if (!boxes[s].empty()) content += svg_boxes(fmt::format("f{}", series[s].look), boxes[s]);
  };
  draw(lane.boxes, 0, kLane);
  draw(lane.below, kLane + kGap, kThin);
  return svg_strip(lane.name, lane.below.empty() ? kLane : kLane + kGap + kThin, content);
}

}  // namespace

std::string gantt(const std::string& label, const std::vector<Series>& series,
                  const std::vector<GanttLane>& lanes, double end, const NumberFormat& format) {
  std::string content;
  for (const GanttLane& lane : lanes) content += lane_picture(lane, series, end);
  const auto time = [&](double at) { return element("span", "", text(format(at))); };
  content += element("div", "times", time(0) + time(end / 2) + time(end));
  return element("figure", "wide", strips(label, content) + series_legend(series));
}

}  // namespace lockstep::reports::html
