#include "sim/engine/recorded_calls.h"

#include <algorithm>
#include <cmath>

namespace lockstep::sim {
namespace {

// 0 where a clock was set back; forever(): beyond the range of the clock.
Picos elapsed(trace::Nanos from, trace::Nanos to) {
  trace::Nanos nanos = 0;
  if (to <= from) return {};
  return __builtin_sub_overflow(to, from, &nanos) ? Picos::forever() : Picos{nanos} * 1000;
}

// By call of the rank: how long its device was in it.
std::vector<Picos> device_times(const trace::RankTrace& rank) {
  std::vector<trace::Nanos> began(rank.calls.size(), trace::kNoTime);
  std::vector<Picos> out(rank.calls.size(), RecordedCalls::kUnknown);
  for (std::size_t c = 0; c < std::min(out.size(), rank.device_times.size()); ++c)
    if (rank.device_times[c] > 0) out[c] = elapsed(0, rank.device_times[c]);
  for (const trace::Event& event : rank.events) {
    if (event.time == trace::kNoTime) continue;
    if (event.kind == trace::EventKind::start) {
      began[event.index] = event.time;
    } else if (event.kind == trace::EventKind::complete && began[event.index] != trace::kNoTime) {
      out[event.index] = elapsed(began[event.index], event.time);
    }
  }
  return out;
}

}  // namespace

RecordedCalls recorded_calls(const trace::Run& run, const RunProgram& program) {
  RecordedCalls out;
  out.times.resize(program.job.groups.size());
  for (const trace::RankTrace& rank : run.ranks) {
    const ProgramJob::Member& member = program.job.ranks[static_cast<std::size_t>(rank.rank.value)];
    const std::vector<ProgramStep>& steps = program.job.programs[member.program].steps;
    const std::vector<Picos> times = device_times(rank);
    std::vector<std::uint32_t> numbers(member.groups.size(), 0);
    for (std::size_t s = 0; s < steps.size(); ++s) {
      if (steps[s].kind != StepKind::call) continue;
      std::vector<Picos>& group = out.times[member.groups[steps[s].slot]];
      const std::uint32_t number = numbers[steps[s].slot]++;
      if (group.size() <= number) group.resize(number + 1, RecordedCalls::kUnknown);
      const Picos time = times[rank.events[program.events[member.program][s]].index];
      Picos& known = group[number];
      if (time == RecordedCalls::kUnknown) continue;
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
  return elapsed(first, last);
}

}  // namespace lockstep::sim
