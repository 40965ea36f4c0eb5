#include "reports/forecasts/step_picture.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "base/quantities.h"
#include "base/tables.h"
#include "base/text.h"
#include "reports/forecasts/parts.h"
#include "reports/html/charts.h"
#include "reports/html/markup.h"
#include "reports/html/page.h"
#include "reports/table.h"

namespace lockstep::reports {
namespace {

using sim::StepInterval;
using sim::StepPicture;
using StepKind = sim::StepWork::Kind;

constexpr std::size_t kPictureNames = 24;  // columns for the stages' names

// How a kind of work is drawn. `series`: its colour on the page. `letter`: in text; ' ' is drawn as
// waiting.
struct Look {
  std::string_view label;
  std::size_t series;
  char letter;
};
enum : std::size_t { kForward, kBackward, kWeight, kWaits, kExchange, kUpdate, kCalls, kEncodes };

Look look_of(StepKind kind) {
  switch (kind) {
    case StepKind::encode:
      return {"encoding", kEncodes, 'E'};
    case StepKind::forward:
      return {"forward", kForward, 'f'};
    case StepKind::backward:
      return {"backward", kBackward, 'b'};
    case StepKind::weight:
      return {"weights' gradients", kWeight, 'b'};
    case StepKind::message:
      return {"messages to it", kWaits, ' '};
    case StepKind::gather:
      return {"parameters gathered", kExchange, ' '};
    case StepKind::reduce:
      return {"gradients reduced", kExchange, ' '};
    case StepKind::slowed:
      return {"slowed down by the exchange", kExchange, ' '};
    case StepKind::norm:
      return {"gradient norm over all stages", kWaits, ' '};
    case StepKind::update:
      return {"optimizer, once a step", kUpdate, ' '};
  }
  return {};
}

// Labels and looks by series index. The last one only if some stage encodes.
std::vector<html::Series> step_series(bool encodes) {
  std::vector<html::Series> out = {{"forward", 0},
                                   {"backward", 3},
                                   {"weights' gradients", 1},
                                   {"waits for a stage", 6},
                                   {"waits for data-parallel calls, or slowed down by them", 4},
                                   {"optimizer, once a step", 7},
                                   {"thin, below: a call is carried out", 2}};
  if (encodes) out.push_back({"encodes", 5});
  return out;
}

bool has_work_of(const StepPicture& picture, StepKind kind) {
  for (const StepPicture::Stage& stage : picture.stages)
    for (const StepInterval& interval : stage.host)
      if (interval.work.kind == kind) return true;
  return false;
}

// The part of the step that is drawn in `columns`, in seconds from its beginning. At most so long
// that a column is half of a forward task, so that tasks can be distinguished; at least a tenth of
// the step.
double drawn_window(const StepPicture& picture, std::size_t columns) {
  double sum = 0, count = 0;
  for (const StepPicture::Stage& stage : picture.stages)
    for (const StepInterval& interval : stage.host) {
      if (interval.work.kind != StepKind::forward) continue;
      sum += (interval.end - interval.begin).seconds();
      ++count;
    }
  const double all = picture.tasks_end().seconds();
  // Without forward tasks there is nothing to distinguish.
  if (count == 0) return all;
  const double fits = static_cast<double>(columns) * sum / count / 2;
  return std::min(all, std::max(fits, all / 10));
}

// For each column the letter of the work that takes most of it; '.' if the stage mostly waits.
std::string picture_row(const std::vector<StepInterval>& host, std::size_t columns, double width) {
  constexpr std::string_view kLetters = "Efb";
  std::vector<std::array<double, kLetters.size()>> shares(columns, {0, 0, 0});
  for (const StepInterval& interval : host) {
    const std::size_t letter = kLetters.find(look_of(interval.work.kind).letter);
    if (letter == std::string_view::npos) continue;
    const auto from = static_cast<std::size_t>(interval.begin.seconds() / width);
    for (std::size_t c = from;
         c < columns && static_cast<double>(c) * width < interval.end.seconds(); ++c) {
      const double begin = std::max(interval.begin.seconds(), static_cast<double>(c) * width);
      const double end = std::min(interval.end.seconds(), static_cast<double>(c + 1) * width);
      shares[c][letter] += std::max(0.0, end - begin);
    }
  }
  std::string out;
  for (const auto& share : shares) {
    const auto most = std::max_element(share.begin(), share.end());
    // A column that is mostly idle is idle, even if something short runs in it.
    const bool idle = share[0] + share[1] + share[2] < width / 2;
    out += idle ? '.' : kLetters[static_cast<std::size_t>(most - share.begin())];
  }
  return out;
}

}  // namespace

std::vector<sim::ForecastPart> step_path(const StepPicture& picture) {
  std::vector<sim::ForecastPart> out;
  for (const StepPicture::PathSum& sum : picture.path) {
    const std::string label(look_of(sum.kind).label);
    const std::string what =
        picture.stages.size() == 1
            ? label
            : fmt::format("{}: {}", printable(picture.stages[sum.stage].name), label);
    out.push_back({what, what, sum.time.seconds(), {}});
  }
  return out;
}

std::string step_picture_text(const StepPicture& picture, const std::string& what,
                              std::size_t width) {
  const std::size_t cells = width - kPictureNames - 3;
  std::string out = what;
  const double window = drawn_window(picture, cells);
  if (const double all = picture.tasks_end().seconds(); window < all)
    out += fmt::format(", its first {} of {}", duration_text(window), duration_text(all));
  out = wrap(out, width, 2) + "\n(E encodes, f forward, b backward, . waits)\n";
  const std::size_t rows = std::min(picture.stages.size(), kMaxStagesShown);
  for (std::size_t s = 0; s < rows; ++s) {
    const StepPicture::Stage& stage = picture.stages[s];
    out += fmt::format(
        "  {} {}\n", pad_right(shorten_middle(printable(stage.name), kPictureNames), kPictureNames),
        picture_row(stage.host, cells, window / static_cast<double>(cells)));
  }
  if (rows < picture.stages.size())
    out += fmt::format("  and {} more\n", picture.stages.size() - rows);
  return out;
}

std::string step_card(const StepPicture& picture, const std::string& what) {
  // A lane is about 30 pixels high, so 64 fill two screens.
  constexpr std::size_t kMaxLanes = 64;
  const bool encodes = has_work_of(picture, StepKind::encode);
  std::vector<html::GanttLane> lanes;
  std::vector<std::string> names = {"forward", "backward", "waits for stages",
                                    "for data-parallel calls"};
  if (encodes) names.insert(names.begin(), "encodes");
  Table table(columns({"stage"}, names));
  for (std::size_t s = 0; s < std::min(kMaxLanes, picture.stages.size()); ++s) {
    const StepPicture::Stage& stage = picture.stages[s];
    html::GanttLane lane{printable(stage.name), {}, {}};
    std::array<double, kEncodes + 1> sums{};
    for (const StepInterval& interval : stage.host) {
      const std::size_t series = look_of(interval.work.kind).series;
      lane.boxes.push_back({interval.begin.seconds(), interval.end.seconds(), series});
      sums[series] += (interval.end - interval.begin).seconds();
    }
    for (const StepInterval& interval : stage.calls)
      lane.below.push_back({interval.begin.seconds(), interval.end.seconds(), kCalls});
    lanes.push_back(std::move(lane));
    std::vector<std::string> cells = {printable(stage.name)};
    if (encodes) cells.push_back(duration_text(sums[kEncodes]));
    for (const double seconds :
         {sums[kForward], sums[kBackward] + sums[kWeight], sums[kWaits], sums[kExchange]})
      cells.push_back(duration_text(seconds));
    table.add(std::move(cells));
  }
  const std::size_t more = picture.stages.size() - lanes.size();
  const std::vector<sim::ForecastPart> path = step_path(picture);
  return html::card(
      "One step",
      html::element(
          "p", "",
          html::text(fmt::format(
              "{}{}, as the engine ran it. A task contains what is in it for its own ranks: "
              "tensor- and context-parallel calls, recomputed layers, waiting for the host.",
              what, duration_text(picture.end)))) +
          html::gantt("what each stage does during one step", step_series(encodes), lanes,
                      picture.end.seconds(),
                      [](double seconds) { return duration_text(seconds); }) +
          table.html("one step by stage") +
          (more == 0
               ? ""
               : html::element("p", "caption", fmt::format("and {}", plural(more, "stage")))) +
          html::element("h3", "", "Critical path") +
          parts_html("critical path", {path, picture.end.seconds(), duration_text}));
}

}  // namespace lockstep::reports
