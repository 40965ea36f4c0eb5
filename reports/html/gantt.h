// A Gantt chart: what is done when. Lanes from the top, time to the right over the whole width,
// however narrow; a box has the style of its series (stacked_charts.h).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "reports/html/stacked_charts.h"

namespace lockstep::reports::html {

struct GanttBox {
  double begin = 0, end = 0;
  std::size_t series = 0;  // index
};

struct GanttLane {
  std::string name;  // text
  std::vector<GanttBox> boxes;
  std::vector<GanttBox> below;  // a thin second row
};

// Time begins at 0 and ends at `end`; boxes are inside. A thousandth shows the series that takes
// most of it, or nothing where less than half of it is taken. So the size is bounded by the lanes,
// not by their boxes. `label`: for screen readers; `words` formats a time. O(boxes + thousandths of
// the boxes).
std::string gantt(const std::string& label, const std::vector<Series>& series,
                  const std::vector<GanttLane>& lanes, double end, const NumberWords& words);

}  // namespace lockstep::reports::html
