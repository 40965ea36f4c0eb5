#include "sim/machine/training_steps.h"

#include <algorithm>

namespace lockstep::sim {

std::vector<std::uint32_t> step_marks(const RankTrace& trace,
                                      const std::vector<std::uint32_t>& events) {
  std::vector<std::uint32_t> out;
  for (std::uint32_t s = 0; s < events.size(); ++s) {
    const std::uint32_t e = events[s];
    const bool ends = trace.events[e].kind == EventKind::span && e + 1 < trace.events.size() &&
                      trace.events[e + 1].kind == EventKind::step;
    if (ends) out.push_back(s);
  }
  return out;
}

std::vector<std::uint32_t> step_marks(const Run& run, const RunProgram& program,
                                      const Folding& folding, std::uint32_t rank_class) {
  const std::uint32_t rank = folding.representatives[rank_class];
  return step_marks(run.ranks[rank], program.events[program.job.ranks[rank].program]);
}

std::vector<Picos> step_ends(const Run& run, const RunProgram& program, const Folding& folding,
                             const ExecutionResult& result) {
  std::vector<Picos> out;
  for (std::uint32_t c = 0; c < folding.representatives.size(); ++c) {
    const std::vector<std::uint32_t> marks = step_marks(run, program, folding, c);
    if (c == 0) out.resize(marks.size());
    out.resize(std::min(out.size(), marks.size()));
    for (std::size_t s = 0; s < out.size(); ++s)
      out[s] = std::max(out[s], result.classes[c].ended[marks[s]]);
  }
  return out;
}

Picos step_time(const std::vector<Picos>& step_ends) {
  if (step_ends.empty()) return {};
  std::vector<Picos> times;
  for (std::size_t s = 1; s < step_ends.size(); ++s)
    times.push_back(step_ends[s] - step_ends[s - 1]);
  if (times.empty()) return step_ends.front();
  std::sort(times.begin(), times.end());
  const std::size_t middle = times.size() / 2;
  if (times.size() % 2 == 1) return times[middle];
  return Picos{times[middle - 1].value + (times[middle] - times[middle - 1]).value / 2};
}

MeasuredSteps measured_steps(const std::vector<Picos>& step_ends) {
  if (step_ends.size() < 2)
    return {0, step_ends.size(), {}, step_ends.empty() ? Picos{} : step_ends.front()};
  return {1, step_ends.size() - 1, step_ends.front(), step_ends.back()};
}

}  // namespace lockstep::sim
