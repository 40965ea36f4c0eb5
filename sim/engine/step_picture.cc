#include "sim/engine/step_picture.h"

#include <algorithm>
#include <map>
#include <utility>

#include "sim/engine/critical_path.h"

namespace lockstep::sim {
namespace {

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
    for (const StepInterval& one : stage.host)
      if (one.work.kind <= StepWork::Kind::weight) out = std::max(out, one.end);
  return out;
}

StepPicture draw_step(const StepProgram& step, const ExecutionResult& result,
                      const std::vector<std::string>& names) {
  StepPicture out;
  out.end = result.end;
  const std::vector<PathPart> path = critical_path(step.job, keep_apart(step.job), result);
  std::map<std::pair<std::size_t, StepWork::Kind>, Picos> sums;
  for (const PathPart& part : path)
    sums[{part.rank_class % names.size(), step.work[part.rank_class][part.step].kind}] +=
        part.end - part.begin;
  for (const auto& [of, time] : sums) out.path.push_back({of.first, of.second, time});
  std::stable_sort(out.path.begin(), out.path.end(),
                   [](const auto& a, const auto& b) { return a.time > b.time; });
  const std::size_t of_slowest =
      path.empty() ? 0 : path[0].rank_class / names.size() * names.size();
  for (std::size_t stage = 0; stage < names.size(); ++stage) {
    const std::size_t rank = of_slowest + stage;
    const RankOutcome& outcome = result.classes[rank];
    out.stages.push_back(
        {names[stage], intervals(step, rank, outcome), calls_of(step, rank, outcome)});
  }
  return out;
}

}  // namespace lockstep::sim
