#include "reports/forecasts/memory.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/quantities.h"
#include "base/tables.h"
#include "base/text.h"
#include "reports/findings/finding_words.h"
#include "reports/forecasts/path.h"
#include "reports/html/charts.h"
#include "reports/html/markup.h"
#include "reports/table.h"

namespace lockstep::reports {
namespace {

using sim::MemorySegment;
using sim::MemoryTimeline;

constexpr std::size_t kShownKinds = 8;  // in addition to the one shown in full
// Charts are for reading side by side; the table above them has every kind.
constexpr std::size_t kCharts = 4;

// "optimizer state".
std::string name_of(std::size_t category) {
  std::string out(trace::kMemoryCategoryNames[category]);
  std::replace(out.begin(), out.end(), '_', ' ');
  return out;
}

double needed(const sim::MemoryTimeline& timeline, const sim::Machine& machine) {
  return sim::device_bytes(timeline.peak_use(), machine);
}

// A kind of ranks: classes with equal peaks share a line, even if the peaks are at different times.
struct RankKind {
  std::size_t shown = 0;  // the class that is shown for all of them: the first
  std::vector<trace::Rank> ranks;
};

// The kinds, those that need most first.
std::vector<RankKind> kinds_of(const sim::MemoryForecast& memory) {
  std::vector<RankKind> out;
  for (std::size_t c = 0; c < memory.classes.size(); ++c) {
    const sim::MemoryTimeline& timeline = memory.classes[c];
    auto kind = std::find_if(out.begin(), out.end(), [&](const RankKind& known) {
      const sim::MemoryTimeline& shown = memory.classes[known.shown];
      return shown.peak == timeline.peak && shown.peak_use() == timeline.peak_use();
    });
    // Quadratic in the kinds, which are few: a job has as many as it has roles (stages times a
    // few).
    if (kind == out.end()) kind = out.insert(kind, {c, {}});
    for (const std::int32_t rank : timeline.ranks) kind->ranks.emplace_back(rank);
  }
  for (RankKind& kind : out) std::sort(kind.ranks.begin(), kind.ranks.end());
  // Stable, so that of kinds that need equally much the one with the lowest rank comes first.
  std::stable_sort(out.begin(), out.end(), [&](const RankKind& a, const RankKind& b) {
    return memory.classes[a.shown].peak_use().total() > memory.classes[b.shown].peak_use().total();
  });
  return out;
}

std::vector<std::size_t> by_bytes(const trace::MemoryUse& use) {
  std::vector<std::size_t> out;
  for (std::size_t c = 0; c < trace::kMemoryCategories; ++c)
    if (use.bytes[c] > 0) out.push_back(c);
  std::stable_sort(out.begin(), out.end(),
                   [&](std::size_t a, std::size_t b) { return use.bytes[a] > use.bytes[b]; });
  return out;
}

// What takes most: "activations are 61 %".
std::string largest_share(const trace::MemoryUse& use) {
  const std::vector<std::size_t> categories = by_bytes(use);
  // A rank that holds nothing still needs what the machine file reserves.
  if (categories.empty()) return "all of it is reserved";
  const std::size_t most = categories.front();
  const double share = static_cast<double>(use.bytes[most]) / static_cast<double>(use.total());
  const std::string name = name_of(most);
  // "activations are 61 %", "optimizer state is 40 %".
  return fmt::format("{} {} {}", name, name.ends_with('s') ? "are" : "is", percent(share));
}

// A line for each category of the peak.
std::string composition(const sim::MemoryTimeline& timeline, const sim::Machine& machine,
                        std::size_t width) {
  const trace::MemoryUse& use = timeline.peak_use();
  const auto total = static_cast<double>(use.total());
  Table table(columns({""}, {"", ""}));
  for (const std::size_t c : by_bytes(use)) {
    const auto bytes = static_cast<double>(use.bytes[c]);
    table.add({name_of(c), bytes_text(bytes), percent(bytes / total)});
  }
  if (machine.fragmentation > 1)
    table.add({"fragmentation", bytes_text(total * (machine.fragmentation - 1)), ""});
  if (machine.reserved.value > 0) table.add({"reserved", bytes_text(machine.reserved), ""});
  return table.text(width, 4);
}

// The line that says that the ranks do not fit; empty if they do.
std::string misfit(const sim::MemoryForecast& memory, const RankKind& kind,
                   const sim::Machine& machine, std::size_t width) {
  const sim::MemoryTimeline& timeline = memory.classes[kind.shown];
  if (sim::fits(timeline, machine)) return {};
  const auto available = static_cast<double>(machine.per_device->value);
  const double need = needed(timeline, machine);
  return fmt::format(
      "  {}\n",
      wrap(fmt::format("does not fit: {} {} {} of {}, {} too much; {}", rank_label(kind.ranks, 40),
                       kind.ranks.size() == 1 ? "needs" : "need", bytes_text(need),
                       bytes_text(available), bytes_text(need - available),
                       largest_share(timeline.peak_use())),
           width - 2, 4));
}

// The lines of the other kinds of ranks.
std::string others(const sim::MemoryForecast& memory, const std::vector<RankKind>& kinds,
                   const sim::Machine& machine, std::size_t width) {
  Table table(columns({""}, {""}, {""}));
  for (std::size_t i = 1; i < kinds.size() && i <= kShownKinds; ++i) {
    const sim::MemoryTimeline& timeline = memory.classes[kinds[i].shown];
    table.add({rank_label(kinds[i].ranks, 18), bytes_text(needed(timeline, machine)),
               largest_share(timeline.peak_use()) +
                   (sim::fits(timeline, machine) ? "" : "; does not fit")});
  }
  std::string out = table.text(width, 4);
  if (kinds.size() > kShownKinds + 1)
    out += fmt::format("    and {} other kinds of ranks: --output json=FILE has them\n",
                       kinds.size() - kShownKinds - 1);
  return out;
}

double most_needed(const sim::MemoryForecast& memory, const sim::Machine& machine) {
  double out = 0;
  for (const sim::MemoryTimeline& timeline : memory.classes)
    out = std::max(out, needed(timeline, machine));
  return out;
}

nlohmann::ordered_json by_category(const trace::MemoryUse& use) {
  nlohmann::ordered_json out;
  for (std::size_t c = 0; c < trace::kMemoryCategories; ++c)
    out[std::string(trace::kMemoryCategoryNames[c])] = use.bytes[c];
  return out;
}

// A list for each key, with a number for each segment.
nlohmann::ordered_json timeline_json(const std::vector<sim::MemorySegment>& segments) {
  nlohmann::ordered_json out;
  for (const char* key : {"begin_ps", "end_ps", "step", "peak_bytes"})
    out[key] = nlohmann::ordered_json::array();
  for (const sim::MemorySegment& segment : segments) {
    out["begin_ps"].push_back(segment.begin.value);
    out["end_ps"].push_back(segment.end.value);
    out["step"].push_back(segment.step);
    out["peak_bytes"].push_back(segment.memory.peak.total());
    for (std::size_t c = 0; c < trace::kMemoryCategories; ++c)
      out["end_bytes"][std::string(trace::kMemoryCategoryNames[c])].push_back(
          segment.memory.end.bytes[c]);
  }
  return out;
}

std::vector<html::Series> categories() {
  // By category. Looks of neighbours in the stack contrast.
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
  for (const sim::MemorySegment& segment : timeline.segments) {
    // A segment is drawn at its peak, because it is not known when within the segment the peak is.
    // After it, until the next segment, the rank holds what the segment left.
    points.push_back({segment.begin.seconds(), use_by_category(segment.memory.peak)});
    points.push_back({segment.end.seconds(), use_by_category(segment.memory.end)});
  }
  const std::string who = ranges(timeline.ranks);
  const double limit = machine.per_device ? static_cast<double>(machine.per_device->value) : 0;
  const auto peak = static_cast<double>(timeline.peak_use().total());
  // A limit far above the peak would flatten the areas.
  return html::element("h3", "", html::text(named_ranks(who))) +
         html::stacked_areas(
             fmt::format("memory of {} over time, by what it is for", named_ranks(who)),
             categories(), points, timeline.segments.back().end.seconds(),
             limit <= 4 * peak ? limit : 0, [](double bytes) { return bytes_text(bytes); },
             [](double seconds) { return duration_text(seconds); });
}

std::string peaks_table(const std::vector<const sim::MemoryTimeline*>& timelines) {
  std::vector<std::string> figures = {"all"};
  for (std::size_t c = 0; c < trace::kMemoryCategories; ++c) figures.push_back(name_of(c));
  Table table(columns({"at the peak of ranks"}, figures));
  for (const sim::MemoryTimeline* timeline : timelines) {
    const trace::MemoryUse& use = timeline->peak_use();
    std::vector<std::string> cells = {shorten_end(ranges(timeline->ranks), 40),
                                      bytes_text(use.total())};
    for (const std::int64_t bytes : use.bytes) cells.push_back(bytes_text(bytes));
    table.add(std::move(cells));
  }
  return table.html("peaks");
}

trace::Nanos nanos(Picos time) { return time.value / 1000; }

std::vector<std::size_t> held_categories(const sim::MemoryTimeline& timeline) {
  std::vector<std::size_t> out;
  for (std::size_t c = 0; c < trace::kMemoryCategories; ++c) {
    const bool held = std::any_of(
        timeline.segments.begin(), timeline.segments.end(), [&](const sim::MemorySegment& segment) {
          return segment.memory.peak.bytes[c] > 0 || segment.memory.end.bytes[c] > 0;
        });
    if (held) out.push_back(c);
  }
  return out;
}

// Calls `add` with each time at which the rank's memory changes. Within a segment it is shown at
// its peak.
template <class Add>
void for_each_change(const sim::MemoryTimeline& timeline, Add add) {
  for (const sim::MemorySegment& segment : timeline.segments) {
    add(nanos(segment.begin), segment.memory.peak);
    add(nanos(segment.end), segment.memory.end);
  }
}

}  // namespace

nlohmann::ordered_json memory_json(const sim::MemoryForecast& memory, const sim::Machine& machine) {
  if (memory.classes.empty()) return nullptr;
  nlohmann::ordered_json out;
  out["needed_bytes"] = most_needed(memory, machine);
  out["per_device_bytes"] = nullptr;
  if (machine.per_device) out["per_device_bytes"] = machine.per_device->value;
  out["reserved_bytes"] = machine.reserved.value;
  out["fragmentation"] = machine.fragmentation;
  out["fits"] = sim::fits(memory, machine);
  for (std::size_t c = 0; c < memory.classes.size(); ++c) {
    const sim::MemoryTimeline& timeline = memory.classes[c];
    const sim::MemorySegment& peak = timeline.segments[timeline.peak];
    nlohmann::ordered_json own;
    own["ranks"] = ranges(timeline.ranks);
    own["needed_bytes"] = needed(timeline, machine);
    own["fits"] = sim::fits(timeline, machine);
    own["peak"] = {{"bytes", peak.memory.peak.total()},
                   {"by_category", nullptr},
                   {"step", peak.step},
                   {"begin_ps", peak.begin.value},
                   {"end_ps", peak.end.value},
                   {"before", memory.peaks_before[c]}};
    own["peak"]["by_category"] = by_category(peak.memory.peak);
    own["timeline"] = timeline_json(timeline.segments);
    out["classes"].push_back(std::move(own));
  }
  return out;
}

std::string memory_text(const sim::MemoryForecast& memory, const sim::Machine& machine,
                        std::size_t width) {
  if (memory.classes.empty()) return {};
  const std::vector<RankKind> kinds = kinds_of(memory);
  const RankKind& first = kinds.front();
  const sim::MemoryTimeline& most = memory.classes[first.shown];
  const sim::MemorySegment& peak = most.segments[most.peak];
  const std::string step =
      peak.step < 0 ? "before the first step" : fmt::format("step {}", peak.step);
  std::string out = fmt::format(
      "  {}\n", wrap(fmt::format("memory at its peak: {}, {}, at {}, before {}",
                                 rank_label(first.ranks, 30), step, duration_text(peak.end),
                                 shorten_middle(printable(memory.peaks_before[first.shown]), 60)),
                     width - 2, 4));
  out += composition(most, machine, width);
  if (kinds.size() > 1)
    out += fmt::format("  other ranks need\n{}", others(memory, kinds, machine, width));
  return out + misfit(memory, first, machine, width);
}

std::string memory_headline(const sim::MemoryForecast& memory, const sim::Machine& machine) {
  if (memory.classes.empty()) return {};
  const std::string out = bytes_text(most_needed(memory, machine));
  // "38 GiB of 80 GiB"; without the device's size only the first.
  return machine.per_device ? fmt::format("{} of {}", out, bytes_text(*machine.per_device)) : out;
}

std::string memory_assumption(const sim::Machine& machine) {
  std::string out =
      "the peak of a rank's tensor storages, with the sizes that it requested while it was "
      "derived; scratch memory is that of the CPU's kernels, and mostly missing where tensors have "
      "no values";
  std::vector<std::string> given;
  if (machine.fragmentation > 1)
    given.push_back(fmt::format("an allocator that takes {} times what is requested",
                                number_text(machine.fragmentation)));
  if (machine.reserved.value > 0)
    given.push_back(
        fmt::format("{} for the framework and the transport", bytes_text(machine.reserved)));
  if (given.empty())
    return fmt::format("{}; the overhead of allocator, framework and transport is left out", out);
  return fmt::format("{}; the machine file adds {}", out, join_and(given));
}

std::string memory_charts(const std::vector<sim::MemoryTimeline>& timelines,
                          const sim::Machine& machine) {
  std::vector<const sim::MemoryTimeline*> most;
  for (const sim::MemoryTimeline& timeline : timelines)
    if (!timeline.segments.empty()) most.push_back(&timeline);
  if (most.empty()) return {};
  std::stable_sort(most.begin(), most.end(), [](const auto* a, const auto* b) {
    return a->peak_use().total() > b->peak_use().total();
  });
  std::string out = peaks_table(most);
  for (std::size_t i = 0; i < std::min(kCharts, most.size()); ++i) out += chart(*most[i], machine);
  if (most.size() > kCharts)
    out += html::element(
        "p", "caption",
        fmt::format("and {} that need less",
                    plural(most.size() - kCharts, "other kind of ranks", "other kinds of ranks")));
  return out;
}

std::vector<TimelineCounter> memory_counters(const sim::MemoryForecast& memory) {
  constexpr std::size_t kNamed = 40;  // columns of the list of ranks
  std::vector<TimelineCounter> out;
  for (const sim::MemoryTimeline& timeline : memory.classes) {
    const auto rank = static_cast<std::size_t>(timeline.ranks.front());
    const std::string name =
        fmt::format("memory (bytes), {}", named_ranks(shorten_end(ranges(timeline.ranks), kNamed)));
    // Two counters, because trace viewers stack the series of one, where a total is hard to read.
    TimelineCounter all{rank, fmt::format("{}, in all:", name), {"total"}, {}};
    TimelineCounter parts{rank, name + ":", {}, {}};
    const std::vector<std::size_t> held = held_categories(timeline);
    for (const std::size_t c : held) parts.series.push_back(name_of(c));
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
