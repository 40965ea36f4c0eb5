#include "reports/html/gantt.h"

#include <algorithm>

#include <fmt/format.h>

#include "reports/html/markup.h"
#include "reports/html/svg.h"

namespace lockstep::reports::html {
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
                  const std::vector<GanttLane>& lanes, double end, const NumberWords& words) {
  std::string content;
  for (const GanttLane& lane : lanes) content += lane_picture(lane, series, end);
  const auto time = [&](double at) { return element("span", "", text(words(at))); };
  content += element("div", "times", time(0) + time(end / 2) + time(end));
  return element("figure", "wide", strips(label, content) + series_legend(series));
}

}  // namespace lockstep::reports::html
