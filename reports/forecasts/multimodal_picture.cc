#include "reports/forecasts/multimodal_picture.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/quantities.h"
#include "base/tables.h"
#include "base/text.h"
#include "reports/html/charts.h"
#include "reports/html/markup.h"

namespace lockstep::reports {
namespace {

using sim::DrawnTask;
using sim::MultimodalForecast;

constexpr std::size_t kPictureNames = 24;  // columns of the places' names

char task_letter(DrawnTask::Kind kind) {
  return kind == DrawnTask::Kind::encoder ? 'E' : kind == DrawnTask::Kind::forward ? 'f' : 'b';
}

// How much of the step is drawn in `columns`: from its beginning, as long as a column is at most
// half of a forward task, so that tasks can be told apart; at least a tenth.
double drawn_window(const MultimodalForecast& f, std::size_t columns) {
  double sum = 0, count = 0;
  for (const DrawnTask& task : f.drawn) {
    if (task.kind != DrawnTask::Kind::forward) continue;
    sum += task.end - task.begin;
    ++count;
  }
  // A job whose LLM never runs forward in what is drawn: there is nothing to tell apart.
  if (count == 0) return f.drawn_seconds;
  const double fits = static_cast<double>(columns) * sum / count / 2;
  return std::min(f.drawn_seconds, std::max(fits, f.drawn_seconds / 10));
}

// What takes most of each column; '.': the place waits.
std::vector<std::string> picture_rows(const MultimodalForecast& f, std::size_t columns) {
  std::vector<std::string> rows(f.places.size(), std::string(columns, '.'));
  std::vector<std::vector<std::array<double, 3>>> shares(
      f.places.size(), std::vector<std::array<double, 3>>(columns, {0, 0, 0}));
  const double width = drawn_window(f, columns) / static_cast<double>(columns);
  if (width <= 0) return rows;
  for (const DrawnTask& task : f.drawn) {
    const auto place = static_cast<std::size_t>(task.place);
    const auto from = static_cast<std::size_t>(task.begin / width);
    for (std::size_t c = from; c < columns && static_cast<double>(c) * width < task.end; ++c) {
      const double begin = std::max(task.begin, static_cast<double>(c) * width);
      const double end = std::min(task.end, static_cast<double>(c + 1) * width);
      shares[place][c][static_cast<std::size_t>(task.kind)] += std::max(0.0, end - begin);
    }
  }
  for (std::size_t place = 0; place < rows.size(); ++place)
    for (std::size_t c = 0; c < columns; ++c) {
      const auto& share = shares[place][c];
      const auto most = std::max_element(share.begin(), share.end());
      // A column that is mostly idle is idle, even if something short runs in it.
      if (share[0] + share[1] + share[2] < width / 2) continue;
      rows[place][c] = task_letter(static_cast<DrawnTask::Kind>(most - share.begin()));
    }
  return rows;
}

}  // namespace

std::string multimodal_picture_text(const MultimodalForecast& f) {
  constexpr std::size_t kColumns = kReportColumns - kPictureNames - 3;
  std::string out = "the slowest pipeline of the first step";
  if (const double window = drawn_window(f, kColumns); window < f.drawn_seconds)
    out +=
        fmt::format(", its first {} of {}", duration_text(window), duration_text(f.drawn_seconds));
  out += "\n(E encodes, f forward, b backward, . waits)\n";
  const std::vector<std::string> rows = picture_rows(f, kColumns);
  for (std::size_t p = 0; p < std::min(rows.size(), kMostPlacesShown); ++p)
    out += fmt::format(
        "  {} {}\n",
        pad_right(shorten_middle(printable(f.places[p].name), kPictureNames), kPictureNames),
        rows[p]);
  if (rows.size() > kMostPlacesShown)
    out += fmt::format("  and {} more\n", rows.size() - kMostPlacesShown);
  return out;
}

std::string multimodal_picture_html(const MultimodalForecast& f) {
  // A lane is some 30 pixels high: 64 are two screens.
  constexpr std::size_t kMostLanes = 64;
  std::vector<html::GanttLane> lanes;
  for (std::size_t p = 0; p < std::min(f.places.size(), kMostLanes); ++p)
    lanes.push_back({printable(f.places[p].name), {}, {}});
  for (const DrawnTask& task : f.drawn)
    if (static_cast<std::size_t>(task.place) < lanes.size())
      lanes[static_cast<std::size_t>(task.place)].boxes.push_back(
          {task.begin, task.end, static_cast<std::size_t>(task.kind)});
  const std::string more =
      f.places.size() > lanes.size()
          ? html::element("p", "caption", fmt::format("and {} more", f.places.size() - kMostLanes))
          : "";
  // The series are in the order of DrawnTask::Kind.
  return html::gantt(
             fmt::format("When each place computes what, over {}", duration_text(f.drawn_seconds)),
             {{"encodes", 1}, {"LLM forward", 0}, {"LLM backward", 3}}, lanes, f.drawn_seconds,
             [](double seconds) { return duration_text(seconds); }) +
         more;
}

}  // namespace lockstep::reports
