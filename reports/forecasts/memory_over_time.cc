#include "reports/forecasts/memory_over_time.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/tables.h"
#include "base/text.h"
#include "reports/html/markup.h"
#include "reports/html/stacked_charts.h"

namespace lockstep::reports {
namespace {

constexpr std::size_t kCharts = 4;

std::string name_of(std::size_t category) {
  std::string out(trace::kMemoryCategoryNames[category]);
  std::replace(out.begin(), out.end(), '_', ' ');
  return out;
}

std::vector<html::Series> categories() {
  constexpr std::array<std::size_t, trace::kMemoryCategories> kLooks = {0, 3, 5, 1, 4, 2, 6, 7};
  std::vector<html::Series> out;
  for (std::size_t c = 0; c < trace::kMemoryCategories; ++c) out.push_back({name_of(c), kLooks[c]});
  return out;
}

std::vector<double> use_by_category(const trace::MemoryUse& use) {
  return {use.bytes.begin(), use.bytes.end()};
}

std::string chart(const sim::MemoryTimeline& timeline, const sim::Machine& machine) {
  std::vector<html::AreaPoint> points;
  for (const sim::MemoryStretch& stretch : timeline.stretches) {
    points.push_back({stretch.begin.seconds(), use_by_category(stretch.memory.peak)});
    points.push_back({stretch.end.seconds(), use_by_category(stretch.memory.end)});
  }
  const std::string who = ranges(timeline.ranks);
  const double limit = machine.per_device ? static_cast<double>(machine.per_device->value) : 0;
  const auto peak = static_cast<double>(timeline.peak_use().total());
  // A limit that is far above would press the areas flat.
  return "<h3>ranks " + html::text(who) + "</h3>" +
         html::stacked_areas("memory of ranks " + who + " over time, by what it is for",
                             categories(), points, timeline.stretches.back().end.seconds(),
                             limit <= 4 * peak ? limit : 0, amount, milliseconds);
}

std::string peaks_table(const std::vector<const sim::MemoryTimeline*>& timelines) {
  std::string head = "<th>at the peak of ranks</th><th class=\"n\">all</th>";
  for (std::size_t c = 0; c < trace::kMemoryCategories; ++c)
    head += "<th class=\"n\">" + name_of(c) + "</th>";
  std::string rows;
  for (const sim::MemoryTimeline* timeline : timelines) {
    const trace::MemoryUse& use = timeline->peak_use();
    rows += "<tr><td>" + html::text(shorten_end(ranges(timeline->ranks), 40)) +
            "</td><td class=\"n\">" + amount(static_cast<double>(use.total())) + "</td>";
    for (const std::int64_t bytes : use.bytes)
      rows += "<td class=\"n\">" + amount(static_cast<double>(bytes)) + "</td>";
    rows += "</tr>\n";
  }
  return html::scroller(
      "peaks", "<table><thead><tr>" + head + "</tr></thead><tbody>" + rows + "</tbody></table>");
}

}  // namespace

std::string memory_charts(const std::vector<sim::MemoryTimeline>& timelines,
                          const sim::Machine& machine) {
  std::vector<const sim::MemoryTimeline*> most;
  for (const sim::MemoryTimeline& timeline : timelines)
    if (!timeline.stretches.empty()) most.push_back(&timeline);
  if (most.empty()) return {};
  std::stable_sort(most.begin(), most.end(), [](const auto* a, const auto* b) {
    return a->peak_use().total() > b->peak_use().total();
  });
  std::string out = peaks_table(most);
  for (std::size_t i = 0; i < std::min(kCharts, most.size()); ++i) out += chart(*most[i], machine);
  if (most.size() > kCharts)
    out += html::element(
        "p", "caption",
        "and " + plural(most.size() - kCharts, "other kind of ranks", "other kinds of ranks") +
            " that need less");
  return out;
}

namespace {

trace::Nanos nanos(Picos time) { return time.value / 1000; }

std::vector<std::size_t> held_categories(const sim::MemoryTimeline& timeline) {
  std::vector<std::size_t> out;
  for (std::size_t c = 0; c < trace::kMemoryCategories; ++c) {
    const bool held =
        std::any_of(timeline.stretches.begin(), timeline.stretches.end(),
                    [&](const sim::MemoryStretch& stretch) {
                      return stretch.memory.peak.bytes[c] > 0 || stretch.memory.end.bytes[c] > 0;
                    });
    if (held) out.push_back(c);
  }
  return out;
}

std::string category_words(std::string_view category) {
  std::string out(category);
  std::replace(out.begin(), out.end(), '_', ' ');
  return out;
}

// Calls `add` with each moment from which on the rank holds something else.
template <class Add>
void for_each_change(const sim::MemoryTimeline& timeline, Add add) {
  for (const sim::MemoryStretch& stretch : timeline.stretches) {
    add(nanos(stretch.begin), stretch.memory.peak);
    add(nanos(stretch.end), stretch.memory.end);
  }
}

}  // namespace

std::vector<TimelineCounter> memory_counters(const sim::MemoryForecast& memory) {
  constexpr std::size_t kNamed = 40;  // columns of the list of ranks
  std::vector<TimelineCounter> out;
  for (const sim::MemoryTimeline& timeline : memory.classes) {
    const auto rank = static_cast<std::size_t>(timeline.ranks.front());
    const std::string name = std::string("memory (bytes), ") +
                             (timeline.ranks.size() == 1 ? "rank " : "ranks ") +
                             shorten_end(ranges(timeline.ranks), kNamed);
    TimelineCounter all{rank, name + ", in all:", {"total"}, {}};
    TimelineCounter parts{rank, name + ":", {}, {}};
    const std::vector<std::size_t> held = held_categories(timeline);
    for (const std::size_t c : held)
      parts.series.push_back(category_words(trace::kMemoryCategoryNames[c]));
    for_each_change(timeline, [&](trace::Nanos time, const trace::MemoryUse& use) {
      all.points.push_back({time, {use.total()}});
      parts.points.push_back({time, {}});
      for (const std::size_t c : held) parts.points.back().values.push_back(use.bytes[c]);
    });
    out.push_back(std::move(all));
    if (!held.empty()) out.push_back(std::move(parts));
  }
  return out;
}

}  // namespace lockstep::reports
