// Charts: amounts that add up, as bars, columns and areas with stacked parts, and what is done
// when, as a Gantt chart. A part has the style of its series (class f0, f1, … of the style sheet);
// the legend names the series in stacking order. Put a table with the numbers next to it: colours
// alone say nothing.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace lockstep::reports::html {

struct Series {
  std::string name;      // text
  std::size_t look = 0;  // 0 to 7: the style sheet has eight
};

// Formats a number: "1.2 GB".
using NumberFormat = std::function<std::string(double)>;

// In all charts `label` is the text for screen readers, and numbers are not negative.
struct StackedBar {
  std::string label;
  std::vector<double> parts;  // by series
};
// A horizontal bar for each; `whole` is the full width.
std::string stacked_bars(const std::string& label, const std::vector<Series>& series,
                         const std::vector<StackedBar>& bars, double whole);

// A column for each of `columns` (parts by series), from left to right; very many are averaged with
// their neighbours. `first`, `last`: labels below the first and the last.
std::string stacked_columns(const std::string& label, const std::vector<Series>& series,
                            const std::vector<std::vector<double>>& columns,
                            const NumberFormat& format, const std::string& first,
                            const std::string& last);

struct AreaPoint {
  double x = 0;
  std::vector<double> parts;  // of each series, from x on
};
// Step functions: a point's parts hold until the next point, the last ones until `end`. If there
// are very many points, the largest of neighbours is drawn. `limit`: a line at this height; 0:
// none.
std::string stacked_areas(const std::string& label, const std::vector<Series>& series,
                          const std::vector<AreaPoint>& points, double end, double limit,
                          const NumberFormat& format, const NumberFormat& x_format);

// A bar to the right for each positive number, to the left for each negative one, with their texts.
struct SignedBar {
  std::string label;
  double value = 0;
  std::string text;
};
std::string signed_bars(const std::string& label, const std::vector<SignedBar>& bars);

// A Gantt chart: what is done when. Lanes from the top, time to the right over the whole width,
// however narrow; a box has the style of its series.
struct GanttBox {
  double begin = 0, end = 0;
  std::size_t series = 0;  // index
};

struct GanttLane {
  std::string name;  // text
  std::vector<GanttBox> boxes;
  std::vector<GanttBox> below;  // a thin second row
};

// Time begins at 0 and ends at `end`; boxes are inside. The width is divided into a thousand parts.
// Each shows the series that takes most of it, or nothing if less than half of it is taken, so that
// the size of the chart depends on the lanes and not on their boxes. `label`: for screen readers;
// `format` formats a time. O(boxes + thousandths that they cover).
std::string gantt(const std::string& label, const std::vector<Series>& series,
                  const std::vector<GanttLane>& lanes, double end, const NumberFormat& format);

}  // namespace lockstep::reports::html
