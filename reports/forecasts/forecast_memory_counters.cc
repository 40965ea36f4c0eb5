#include "reports/forecasts/forecast_memory_counters.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/columns.h"
#include "base/text.h"

namespace lockstep {
namespace {

Nanos nanos(sim::Picos time) { return time.value / 1000; }

std::vector<std::size_t> held_categories(const sim::MemoryTimeline& timeline) {
  std::vector<std::size_t> out;
  for (std::size_t c = 0; c < kMemoryCategories; ++c) {
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

std::vector<TimelineCounter> memory_counters(const MemoryForecast& memory) {
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
      parts.series.push_back(category_words(kMemoryCategoryNames[c]));
    for_each_change(timeline, [&](Nanos time, const MemoryUse& use) {
      all.points.push_back({time, {use.total()}});
      parts.points.push_back({time, {}});
      for (const std::size_t c : held) parts.points.back().values.push_back(use.bytes[c]);
    });
    out.push_back(std::move(all));
    if (!held.empty()) out.push_back(std::move(parts));
  }
  return out;
}

}  // namespace lockstep
