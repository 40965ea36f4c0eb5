#include "sim/forecast/memory_timeline.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace lockstep::sim {
namespace {

bool counted(const trace::RankCosts& costs) {
  return std::all_of(costs.work.begin(), costs.work.end(),
                     [](const trace::WorkCost& work) { return work.memory.has_value(); });
}

bool hold_the_same(const trace::RankCosts& a, const trace::RankCosts& b) {
  return std::equal(
      a.work.begin(), a.work.end(), b.work.begin(), b.work.end(),
      [](const trace::WorkCost& x, const trace::WorkCost& y) { return x.memory == y.memory; });
}

// Gives costs with equal memory use equal numbers. Ranks that are alike share one object, so few
// objects are compared.
class Numbers {
 public:
  std::uint32_t of(const trace::RankCosts* costs) {
    const auto [known, is_new] = known_.try_emplace(costs, 0);
    if (!is_new) return known->second;
    const auto same =
        std::find_if(different_.begin(), different_.end(),
                     [&](const trace::RankCosts* d) { return hold_the_same(*d, *costs); });
    known->second = static_cast<std::uint32_t>(same - different_.begin());
    if (same == different_.end()) different_.push_back(costs);
    return known->second;
  }

 private:
  std::map<const trace::RankCosts*, std::uint32_t> known_;
  std::vector<const trace::RankCosts*> different_;
};

// The segments of one rank, by the events that end them. Walks its events, program steps and costs
// in parallel: they are in the same order.
std::vector<MemorySegment> segments_of(const trace::RankTrace& trace, const Program& program,
                                       const std::vector<std::uint32_t>& events,
                                       const RankOutcome& outcome, const trace::RankCosts& costs) {
  std::vector<MemorySegment> out;
  auto work = costs.work.begin();
  Picos began, now;  // begin of the current segment; the host's time
  const auto end_segment = [&](std::uint32_t event, Picos goes_on) {
    LOCKSTEP_CHECK(work != costs.work.end(), "timed_run() holds costs against the trace");
    out.push_back({began, now, work->step, event, *work->memory});
    ++work;
    began = now = goes_on;
  };
  std::uint32_t s = 0;
  for (std::uint32_t e = 0; e < trace.events.size(); ++e) {
    if (trace.events[e].kind == trace::EventKind::step) end_segment(e, now);
    if (s == events.size() || events[s] != e) continue;
    const ProgramStep& step = program.steps[s];
    const bool computes = step.kind == StepKind::compute;
    const bool waits = step.kind == StepKind::wait || step.blocks;
    // Work moves the host's time to its end. A call or wait ends the segment when the host reaches
    // it, and the next one begins when the host goes on.
    now = computes ? outcome.ended[s] : outcome.issued[s];
    if (!computes) {
      end_segment(e, waits ? outcome.ended[s] : now);
    } else if (work != costs.work.end() && trace::ends_between_steps(work->before)) {
      end_segment(e, now);
    }
    ++s;
  }
  return out;
}

std::size_t first_highest(const std::vector<MemorySegment>& segments) {
  const auto highest = std::max_element(segments.begin(), segments.end(),
                                        [](const MemorySegment& a, const MemorySegment& b) {
                                          return a.memory.peak.total() < b.memory.peak.total();
                                        });
  return highest == segments.end() ? 0 : static_cast<std::size_t>(highest - segments.begin());
}

std::string what_ends(const trace::Tables& tables, const trace::RankTrace& trace,
                      const trace::Event& event) {
  if (event.kind == trace::EventKind::step) return "the step's end";
  if (event.kind == trace::EventKind::span)
    return fmt::format("the {}'s end", tables.str(trace.spans[event.index].name));
  return (event.kind == trace::EventKind::wait ? "the wait for " : "") +
         trace::describe(tables, trace.calls[event.index]);
}

}  // namespace

double device_bytes(const trace::MemoryUse& use, const Machine& machine) {
  return static_cast<double>(use.total()) * machine.fragmentation +
         static_cast<double>(machine.reserved.value);
}

std::vector<MemoryTimeline> memory_timelines(const trace::Run& run, const RunProgram& program,
                                             const Folding& folding, const ExecutionResult& result,
                                             const std::vector<const trace::RankCosts*>& costs) {
  LOCKSTEP_CHECK(costs.size() == run.ranks.size(), "costs of every rank");
  Numbers numbers;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::size_t> known;
  std::vector<MemoryTimeline> out;
  for (std::size_t r = 0; r < run.ranks.size(); ++r) {
    const std::uint32_t c = folding.class_of[r];
    const auto [found, is_new] = known.try_emplace({c, numbers.of(costs[r])}, out.size());
    if (is_new) {
      if (!counted(*costs[r])) return {};
      const std::uint32_t p = program.job.ranks[r].program;
      MemoryTimeline timeline;
      timeline.segments = segments_of(run.ranks[r], program.job.programs[p], program.events[p],
                                      result.classes[c], *costs[r]);
      timeline.peak = first_highest(timeline.segments);
      out.push_back(std::move(timeline));
    }
    out[found->second].ranks.push_back(static_cast<std::int32_t>(r));
  }
  return out;
}

MemoryForecast memory_forecast(std::vector<MemoryTimeline> timelines, const trace::Run& run) {
  MemoryForecast out;
  // Ranks without any work hold nothing.
  std::erase_if(timelines, [](const MemoryTimeline& t) { return t.segments.empty(); });
  for (const MemoryTimeline& timeline : timelines) {
    const trace::RankTrace& trace = run.ranks[static_cast<std::size_t>(timeline.ranks.front())];
    const trace::Event& event = trace.events[timeline.segments[timeline.peak].event];
    out.peaks_before.push_back(what_ends(run.tables, trace, event));
  }
  out.classes = std::move(timelines);
  return out;
}

bool fits(const MemoryTimeline& timeline, const Machine& machine) {
  return !machine.per_device || device_bytes(timeline.peak_use(), machine) <=
                                    static_cast<double>(machine.per_device->value);
}

bool fits(const MemoryForecast& memory, const Machine& machine) {
  return std::all_of(memory.classes.begin(), memory.classes.end(),
                     [&](const MemoryTimeline& timeline) { return fits(timeline, machine); });
}

}  // namespace lockstep::sim
