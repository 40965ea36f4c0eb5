// Any bytes as a plan file: an error with its place, or a plan that can be forecast or refused.
#include <cmath>
#include <string>

#include "base/check.h"
#include "sim/transformer/calibration.h"
#include "sim/transformer/plan_forecast.h"
#include "tests/fuzz/targets.h"

namespace lockstep {

void fuzz_plan(std::string_view bytes) {
  const Result<sim::PlanFile> plan = sim::parse_plan(std::string(bytes), "fuzz.yaml");
  if (!plan) {
    LOCKSTEP_CHECK(!plan.error().message.empty(), "an error says what is wrong");
    LOCKSTEP_CHECK(plan.error().location.file == "fuzz.yaml", "and where");
    return;
  }
  LOCKSTEP_CHECK(!sim::workload_problem(plan->model, plan->plan), "what is read can be");
  const std::int64_t pieces = std::int64_t{plan->plan.pipeline} * plan->plan.chunks;
  if (plan->plan.micro_batches() > 10'000 / pieces) return;  // right, and slow
  static const Result<sim::Calibration> calibration = sim::shipped_calibration("a100-cluster");
  const Result<sim::PlanForecast> forecast = sim::forecast_plan(*plan, *calibration);
  if (!forecast) return;
  double sum = 0;
  for (const sim::ForecastPart& part : forecast->time) sum += part.value;
  LOCKSTEP_CHECK(std::abs(sum - forecast->step.seconds) <= 1e-6 * forecast->step.seconds,
                 "the parts are the step");
}

}  // namespace lockstep
