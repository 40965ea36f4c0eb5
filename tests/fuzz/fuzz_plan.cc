// Any bytes as a plan file, of one transformer or of several towers: an error with its location, or
// a plan that can be forecast or refused. And as a manifest of samples.
#include <algorithm>
#include <cmath>
#include <string>

#include "base/check.h"
#include "base/documents/yaml_document.h"
#include "sim/multimodal/multimodal_forecast.h"
#include "sim/transformer/calibration.h"
#include "sim/transformer/plan_forecast.h"
#include "tests/fuzz/targets.h"

namespace lockstep {

namespace {

void fuzz_towers(const YamlDocument& document) {
  const Result<sim::MultimodalPlan> plan =
      sim::read_multimodal_plan(document, "{\"text\": 300, \"image\": [256, 64]}\n");
  if (!plan) {
    LOCKSTEP_CHECK(!plan.error().message.empty(), "an error says what is wrong");
    LOCKSTEP_CHECK(!plan.error().location.file.empty(), "and where");
    return;
  }
  const sim::TrainingPlan& llm = plan->llm.plan;
  const std::int64_t work = llm.global_batch * llm.pipeline * llm.chunks * plan->steps;
  if (work > 20'000 || llm.sequence > 100'000) return;  // right, and slow
  for (const sim::ItemData& item : plan->data.items)
    if (std::min<double>(static_cast<double>(item.per_sample.most),
                         item.per_sample.first + item.per_sample.second) > 100)
      return;
  static const Result<sim::Calibration> machines = sim::shipped_calibration("a100-cluster");
  const Result<sim::MultimodalForecast> forecast = sim::forecast_towers(*plan, *machines);
  if (!forecast) return;
  LOCKSTEP_CHECK(std::isfinite(forecast->seconds) && forecast->seconds > 0, "a step takes time");
  for (const sim::ForecastPart& part : forecast->time)
    LOCKSTEP_CHECK(part.value >= 0, "no part is negative");
}

}  // namespace

void fuzz_plan(std::string_view bytes) {
  const Result<std::vector<sim::DataSample>> samples = sim::parse_manifest(bytes, "fuzz.jsonl");
  LOCKSTEP_CHECK(samples || samples.error().location.line > 0, "an error names its line");
  const auto refused = [](const Error& error) {
    LOCKSTEP_CHECK(!error.message.empty(), "an error says what is wrong");
    LOCKSTEP_CHECK(error.location.file == "fuzz.yaml", "and where");
  };
  const Result<YamlDocument> document = parse_yaml(std::string(bytes), "fuzz.yaml");
  if (!document) return refused(document.error());
  if (sim::is_multimodal(document->value)) return fuzz_towers(*document);
  const Result<sim::PlanFile> plan = sim::read_plan(*document);
  if (!plan) return refused(plan.error());
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
