#include "sim/engine/recorded_calls.h"

#include <algorithm>
#include <cmath>

#include "trace/device_times.h"

namespace lockstep::sim {

RecordedCalls recorded_calls(const trace::Run& run, const RunProgram& program) {
  RecordedCalls out;
  out.times.resize(program.job.groups.size());
  for (const trace::RankTrace& rank : run.ranks) {
    const ProgramJob::Member& member = program.job.ranks[static_cast<std::size_t>(rank.rank.value)];
    const std::vector<ProgramStep>& steps = program.job.programs[member.program].steps;
    const std::vector<trace::Nanos> times = trace::device_times(rank);
    std::vector<std::uint32_t> numbers(member.groups.size(), 0);
    for (std::size_t s = 0; s < steps.size(); ++s) {
      if (steps[s].kind != StepKind::call) continue;
      std::vector<Picos>& group = out.times[member.groups[steps[s].slot]];
      const std::uint32_t number = numbers[steps[s].slot]++;
      if (group.size() <= number) group.resize(number + 1, RecordedCalls::kUnknown);
      const trace::Nanos nanos = times[rank.events[program.events[member.program][s]].index];
      if (nanos == trace::kNoTime) continue;
      const Picos time = Picos{nanos} * 1000;
      Picos& known = group[number];
      known = known == RecordedCalls::kUnknown ? time : std::min(known, time);
    }
  }
  for (const std::vector<Picos>& group : out.times) {
    const auto missing = std::count(group.begin(), group.end(), RecordedCalls::kUnknown);
    out.unknown += static_cast<std::uint64_t>(missing);
    out.known += group.size() - static_cast<std::uint64_t>(missing);
  }
  return out;
}

Picos RecordedCalls::time(std::uint32_t group, std::uint32_t number, double factor) const {
  const Picos recorded = times[group][number];
  if (recorded == kUnknown) return {};
  const double scaled = static_cast<double>(recorded.value) * factor;
  if (!(scaled < static_cast<double>(Picos::forever().value))) return Picos::forever();
  return Picos{std::llround(scaled)};
}

std::optional<Picos> recorded_time(const trace::RankTrace& rank) {
  trace::Nanos first = INT64_MAX, last = INT64_MIN;
  for (const trace::Event& event : rank.events) {
    if (event.time == trace::kNoTime) continue;
    trace::Nanos end = event.time;
    if (event.kind == trace::EventKind::span &&
        __builtin_add_overflow(end, rank.spans[event.index].duration, &end))
      end = INT64_MAX;
    first = std::min(first, event.time);
    last = std::max(last, end);
  }
  if (last < first) return std::nullopt;
  trace::Nanos nanos = 0;
  return __builtin_sub_overflow(last, first, &nanos) ? Picos::forever() : Picos{nanos} * 1000;
}

}  // namespace lockstep::sim
