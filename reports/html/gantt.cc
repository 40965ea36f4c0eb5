#include "reports/html/gantt.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/tables.h"
#include "reports/html/markup.h"
#include "reports/html/svg.h"

namespace lockstep::reports::html {
namespace {

constexpr double kLeft = 190;  // room for the lanes' names
constexpr std::size_t kNameColumns = 27;
constexpr std::size_t kPixels = 530;
constexpr double kLane = 16, kThin = 6, kGap = 8;  // heights
constexpr std::size_t kParts = 4;                  // between labels of the time

// The boxes of a row by series, a pixel wide or wider.
std::vector<std::vector<Box>> drawn(const std::vector<GanttBox>& row, std::size_t series,
                                    double end, double y, double height) {
  std::vector<std::vector<double>> taken(kPixels, std::vector<double>(series, 0));
  const double scale = end > 0 ? static_cast<double>(kPixels) / end : 0;
  for (const GanttBox& box : row) {
    const double from = std::max(0.0, box.begin * scale);
    const double to = std::min(static_cast<double>(kPixels), box.end * scale);
    for (auto p = static_cast<std::size_t>(from); static_cast<double>(p) < to; ++p) {
      const auto left = static_cast<double>(p);
      taken[p][box.series] += std::min(to, left + 1) - std::max(from, left);
    }
  }
  std::vector<std::vector<Box>> out(series);
  for (std::size_t p = 0; p < kPixels; ++p) {
    double all = 0;
    for (const double part : taken[p]) all += part;
    if (all < .5) continue;
    const auto most = static_cast<std::size_t>(std::max_element(taken[p].begin(), taken[p].end()) -
                                               taken[p].begin());
    const double x = kLeft + static_cast<double>(p);
    std::vector<Box>& boxes = out[most];
    if (!boxes.empty() && boxes.back().right().x == x)
      boxes.back().width += 1;
    else
      boxes.push_back({x, y, 1, height});
  }
  return out;
}

}  // namespace

std::string gantt(const std::string& label, const std::vector<Series>& series,
                  const std::vector<GanttLane>& lanes, double end, const NumberWords& words) {
  std::string content;
  double y = 0;
  const auto draw = [&](const std::vector<GanttBox>& row, double height) {
    const std::vector<std::vector<Box>> boxes = drawn(row, series.size(), end, y, height);
    for (std::size_t s = 0; s < boxes.size(); ++s)
      if (!boxes[s].empty()) content += svg_boxes(fmt::format("f{}", series[s].look), boxes[s]);
    y += height;
  };
  for (const GanttLane& lane : lanes) {
    content += svg_text("note", {0, y + kLane - 4}, shorten_middle(lane.name, kNameColumns));
    draw(lane.boxes, kLane);
    if (!lane.below.empty()) {
      y += 1;
      draw(lane.below, kThin);
    }
    y += kGap;
  }
  for (std::size_t part = 0; part <= kParts; ++part) {
    const double share = static_cast<double>(part) / static_cast<double>(kParts);
    const double x = kLeft + share * static_cast<double>(kPixels);
    content += svg_line("axis", {x, 0}, {x, y}) + svg_text("note", {x, y + 14}, words(share * end),
                                                           part == 0        ? "start"
                                                           : part == kParts ? "end"
                                                                            : "middle");
  }
  return element(
      "figure", "wide",
      scroller("chart", svg_picture(label, kLeft + static_cast<double>(kPixels), y + 20, content)) +
          series_legend(series));
}

}  // namespace lockstep::reports::html
