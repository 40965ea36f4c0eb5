#include "sim/engine/step_picture.h"

#include <algorithm>
#include <map>
#include <utility>

#include "sim/engine/critical_path.h"

namespace lockstep::sim {
namespace {

// When the calls that `rank` makes are carried out.
std::vector<StepInterval> calls_of(const StepProgram& step, std::size_t rank,
                                   const RankOutcome& outcome) {
  std::vector<StepInterval> out;
  const std::vector<ProgramStep>& steps = step.job.programs[rank].steps;
  for (std::size_t s = 0; s < steps.size(); ++s)
    if (steps[s].kind == StepKind::call && outcome.began[s] < outcome.ended[s])
      out.push_back({outcome.began[s], outcome.ended[s], step.work[rank][s]});
  return out;
}

}  // namespace

Picos StepPicture::tasks_end() const {
  Picos out;
  for (const Stage& stage : stages)
    for (const StepInterval& interval : stage.host)
      // encode, forward, backward and weight are tasks; the kinds after them are not.
      if (interval.work.kind <= StepWork::Kind::weight) out = std::max(out, interval.end);
  return out;
}

StepPicture draw_step(const StepProgram& step, const ExecutionResult& result,
                      const std::vector<std::string>& names) {
  StepPicture out;
  out.end = result.end;
  const std::vector<PathPart> path = critical_path(step.job, unfolded(step.job), result);
  // unfolded(): every rank is its own class, and rank = replica x stages + stage.
  const std::size_t stages = names.size();
  std::map<std::pair<std::size_t, StepWork::Kind>, Picos> sums;
  for (const PathPart& part : path)
    sums[{part.rank_class % stages, step.work[part.rank_class][part.step].kind}] +=
        part.end - part.begin;
  for (const auto& [stage_and_kind, time] : sums)
    out.path.push_back({stage_and_kind.first, stage_and_kind.second, time});
  std::stable_sort(out.path.begin(), out.path.end(),
                   [](const auto& a, const auto& b) { return a.time > b.time; });
  // The replica where the critical path begins is the slowest one.
  const std::size_t slowest_replica = path.empty() ? 0 : path[0].rank_class / stages;
  for (std::size_t stage = 0; stage < stages; ++stage) {
    const std::size_t rank = slowest_replica * stages + stage;
    const RankOutcome& outcome = result.classes[rank];
    out.stages.push_back(
        {names[stage], intervals(step, rank, outcome), calls_of(step, rank, outcome)});
  }
  return out;
}

}  // namespace lockstep::sim
