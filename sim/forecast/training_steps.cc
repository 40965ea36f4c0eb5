#include "sim/forecast/training_steps.h"

#include <algorithm>

#include "sim/forecast/timed_run.h"

namespace lockstep::sim {

StepMarks step_marks(const trace::Tables& tables, const trace::RankTrace& trace,
                     const std::vector<std::uint32_t>& events) {
  StepMarks out;
  for (std::uint32_t s = 0; s < events.size(); ++s) {
    const std::uint32_t e = events[s];
    const trace::Event& event = trace.events[e];
    if (event.kind != trace::EventKind::span) continue;
    // timed_run() puts a span directly before every step mark.
    if (e + 1 < trace.events.size() && trace.events[e + 1].kind == trace::EventKind::step) {
      out.ends.push_back(s);
      out.over.push_back(s);
      continue;
    }
    const std::string& name = tables.str(trace.spans[event.index].name);
    if (name == kCheckpointSpan && !out.over.empty()) out.over.back() = s;
    if (name == kEvaluationSpan) out.evaluated = s;
  }
  return out;
}

StepMarks step_marks(const trace::Run& run, const RunProgram& program, const Folding& folding,
                     std::uint32_t rank_class) {
  const std::uint32_t rank = folding.representatives[rank_class];
  return step_marks(run.tables, run.ranks[rank], program.events[program.job.ranks[rank].program]);
}

void StepTimes::add(const StepMarks& marks, const std::vector<Picos>& ended) {
  // Only steps that all ranks ended count.
  const std::size_t steps = is_first_ ? marks.ends.size() : std::min(size(), marks.ends.size());
  is_first_ = false;
  ends_.resize(steps);
  over_.resize(steps);
  for (std::size_t s = 0; s < steps; ++s) {
    ends_[s] = std::max(ends_[s], ended[marks.ends[s]]);
    over_[s] = std::max(over_[s], ended[marks.over[s]]);
  }
  if (marks.evaluated) evaluated_ = std::max(evaluated_.value_or(Picos{}), ended[*marks.evaluated]);
}

std::optional<Picos> StepTimes::evaluation() const {
  if (!evaluated_) return std::nullopt;
  return *evaluated_ - (over_.empty() ? Picos{} : over_.back());
}

StepTimes step_times(const trace::Run& run, const RunProgram& program, const Folding& folding,
                     const ExecutionResult& result) {
  StepTimes out;
  for (std::uint32_t c = 0; c < folding.representatives.size(); ++c)
    out.add(step_marks(run, program, folding, c), result.classes[c].ended);
  return out;
}

Picos step_time(const StepTimes& times) {
  if (times.size() == 0) return {};
  if (times.size() == 1) return times.of(0);
  // The first step arranges buffers, so it takes longer.
  std::vector<Picos> each;
  for (std::size_t s = 1; s < times.size(); ++s) each.push_back(times.of(s));
  std::sort(each.begin(), each.end());
  const std::size_t middle = each.size() / 2;
  if (each.size() % 2 == 1) return each[middle];
  // The mean of the middle two, without an overflow of their sum.
  return Picos{each[middle - 1].value + (each[middle] - each[middle - 1]).value / 2};
}

MeasuredSteps measured_steps(const StepTimes& times) {
  MeasuredSteps out;
  if (times.size() == 0) return out;
  out.first = times.size() > 1 ? 1 : 0;
  out.count = times.size() - out.first;
  out.begin = times.begin(out.first);
  out.end = times.ends().back();
  for (std::size_t s = out.first; s < times.size(); ++s) out.in_steps += times.of(s);
  return out;
}

}  // namespace lockstep::sim
