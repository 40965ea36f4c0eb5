#include "sim/transformer/step_picture.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "sim/engine/critical_path.h"

namespace lockstep::sim {
namespace {

std::string_view words_of(StepWork::Kind kind) {
  switch (kind) {
    case StepWork::Kind::forward:
      return "forward";
    case StepWork::Kind::backward:
      return "backward";
    case StepWork::Kind::weight:
      return "weights' gradients";
    case StepWork::Kind::message:
      return "messages to it";
    case StepWork::Kind::gather:
      return "parameters gathered";
    case StepWork::Kind::reduce:
      return "gradients reduced";
    case StepWork::Kind::slowed:
      return "slowed down by the exchange";
    case StepWork::Kind::meeting:
      return "meeting of all stages";
    case StepWork::Kind::update:
      return "optimizer, once a step";
  }
  return "";
}

std::vector<StepStretch> calls_of(const SimulatedStep& step, std::size_t stage) {
  std::vector<StepStretch> out;
  const std::vector<ProgramStep>& steps = step.program.job.programs[stage].steps;
  const RankOutcome& outcome = step.result.classes[stage];
  for (std::size_t s = 0; s < steps.size(); ++s)
    if (steps[s].kind == StepKind::call && outcome.began[s] < outcome.ended[s])
      out.push_back({outcome.began[s], outcome.ended[s], step.program.work[stage][s]});
  return out;
}

std::vector<ForecastPart> path_of(const SimulatedStep& step) {
  const ProgramJob& job = step.program.job;
  std::map<std::pair<std::uint32_t, StepWork::Kind>, Picos> sums;
  for (const PathPart& part : critical_path(job, keep_apart(job), step.result))
    sums[{part.rank_class, step.program.work[part.rank_class][part.step].kind}] +=
        part.end - part.begin;
  std::vector<ForecastPart> out;
  for (const auto& [of, time] : sums) {
    const auto& [stage, kind] = of;
    const std::string what = job.ranks.size() == 1
                                 ? std::string(words_of(kind))
                                 : fmt::format("stage {}: {}", stage, words_of(kind));
    out.push_back({what, what, time.seconds(), {}});
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const ForecastPart& a, const ForecastPart& b) { return a.value > b.value; });
  return out;
}

}  // namespace

Result<StepPicture> draw_step(const PlanForecast& forecast) {
  Result<SimulatedStep> step = simulate_step(forecast.plan.model, forecast.plan.plan,
                                             forecast.calibration.cost, /*for_path=*/true);
  if (!step) return step.error();
  StepPicture out;
  out.end = step->result.end;
  for (std::size_t stage = 0; stage < step->stretches.size(); ++stage)
    out.stages.push_back({std::move(step->stretches[stage]), calls_of(*step, stage)});
  out.path = path_of(*step);
  return out;
}

}  // namespace lockstep::sim
