#include "sim/transformer/evaluation.h"

#include <algorithm>
#include <cmath>

namespace lockstep::sim {

ErrorSummary summarize(const std::vector<Comparison>& comparisons) {
  ErrorSummary summary;
  summary.count = comparisons.size();
  if (comparisons.empty()) return summary;
  std::vector<double> errors;
  errors.reserve(comparisons.size());
  for (const Comparison& comparison : comparisons) errors.push_back(std::abs(comparison.error()));
  std::sort(errors.begin(), errors.end());
  for (const double error : errors) summary.mean += error / static_cast<double>(errors.size());
  const std::size_t half = errors.size() / 2;
  summary.median = errors.size() % 2 == 1 ? errors[half] : (errors[half - 1] + errors[half]) / 2;
  summary.largest = errors.back();
  return summary;
}

Result<StepPrediction> predict_measured(const MeasuredStep& step, const CostParameters& cost) {
  if (!step.micro_batch_unknown) return predict_step(step.model, step.plan, cost);
  std::optional<StepPrediction> best;
  std::optional<Error> refused;
  for (const std::int64_t micro_batch : {1, 2, 4, 8, 16})
    for (const std::int32_t chunks : {1, 2}) {
      if (chunks > 1 && step.plan.pipeline == 1) continue;
      TrainingPlan plan = step.plan;
      plan.micro_batch = micro_batch;
      plan.chunks = chunks;
      plan.schedule = chunks > 1 ? PipelineSchedule::interleaved : PipelineSchedule::one_f_one_b;
      Result<StepPrediction> prediction = predict_step(step.model, plan, cost);
      if (!prediction) {
        if (!refused) refused = prediction.error();
      } else if (!best || prediction->seconds < best->seconds) {
        best = *prediction;
      }
    }
  if (best) return *best;
  return *refused;
}

Result<std::vector<Comparison>> compare_row(const MeasuredStep& step, std::size_t row,
                                            const CostParameters& cost) {
  const Result<StepPrediction> prediction = predict_measured(step, cost);
  if (!prediction) return prediction.error();
  std::vector<Comparison> out;
  if (step.as_tokens) {
    const double tokens = static_cast<double>(step.plan.global_batch) *
                          static_cast<double>(step.plan.sequence) /
                          static_cast<double>(step.plan.ranks());
    out.push_back(
        {Comparison::Kind::tokens, row, tokens / prediction->seconds, tokens / step.seconds});
  } else {
    out.push_back({Comparison::Kind::seconds, row, prediction->seconds, step.seconds});
  }
  if (step.memory_bytes)
    out.push_back({Comparison::Kind::memory, row, prediction->memory_bytes, *step.memory_bytes});
  return out;
}

}  // namespace lockstep::sim
