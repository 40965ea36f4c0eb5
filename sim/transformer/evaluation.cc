#include "sim/transformer/evaluation.h"

#include <algorithm>
#include <cmath>

#include "base/files/read_file.h"
#include "sim/collectives/nccl_curves.h"
#include "sim/machine/work_time.h"

namespace lockstep::sim {
namespace {

bool is_listed(const std::vector<std::string>& list, const std::string& what) {
  return std::find(list.begin(), list.end(), what) != list.end();
}

// Whether a measurement is itself a point of a curve, and so predicted by itself.
bool is_point(const std::vector<NcclCurve>& curves, const MeasuredCollective& measured) {
  for (const NcclCurve& curve : curves)
    if (curve.machine == measured.machine && curve.ranks == measured.ranks)
      for (const NcclCurve::Point& point : curve.points)
        if (point.bytes == static_cast<double>(measured.bytes)) return true;
  return false;
}

}  // namespace

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
  // Some combinations are impossible (a batch that a micro-batch does not divide); all failing is
  // an error, and the first one is reported.
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

Result<TableAnswer> predict_steps(const MeasuredTable& table, const Calibration& calibration) {
  TableAnswer answer{table.file, calibration.name + " (" + calibration.origin + ")", {}};
  for (std::size_t i = 0; i < table.steps.size(); ++i) {
    const MeasuredStep& step = table.steps[i];
    const auto figures = compare_row(step, i + 1, calibration.cost);
    if (!figures)
      return Error{table.file + ", row " + std::to_string(i + 1) + ": " + figures.error().message,
                   {},
                   figures.error().fix};
    // Rows that the calibration was fitted to are no test of it: the report separates them.
    const bool known = is_listed(calibration.fitted_on, step.label);
    for (const Comparison& figure : *figures) answer.rows.push_back({step.label, figure, known});
  }
  return answer;
}

Result<TableAnswer> predict_collectives(const MeasuredTable& table,
                                        const std::string& curves_file) {
  // The shipped curves are embedded; the file's name is for messages.
  const std::string file = curves_file.empty() ? "sim/machines/calibration-nccl.yaml" : curves_file;
  Result<std::string> text = curves_file.empty()
                                 ? Result<std::string>(std::string(shipped_nccl_curves()))
                                 : read_input(curves_file);
  if (!text) return text.error();
  const auto curves = parse_nccl_curves(*text, file);
  if (!curves) return curves.error();
  TableAnswer answer{table.file, file, {}};
  std::size_t row = 0;
  for (const MeasuredCollective& measured : table.collectives) {
    ++row;
    const auto seconds = nccl_seconds(*curves, measured.machine, measured.ranks,
                                      static_cast<double>(measured.bytes));
    if (!seconds) return seconds.error();
    answer.rows.push_back({measured.label,
                           {Comparison::Kind::seconds, row, *seconds, measured.seconds},
                           is_point(*curves, measured)});
  }
  return answer;
}

Result<TableAnswer> predict_on_machine(const MeasuredTable& table, const Machine& machine,
                                       const std::string& machine_file) {
  TableAnswer answer{table.file, machine_file, {}};
  std::size_t row = 0;
  for (const MeasuredCollective& measured : table.collectives) {
    ++row;
    ProgramCall call;
    call.op = trace::Op::all_reduce;
    call.bytes = Bytes{measured.bytes};
    // The machine's model needs the same number of ranks on each node.
    if (measured.ranks % measured.nodes != 0)
      return Error{table.file + ", row " + std::to_string(row) + ": " +
                       std::to_string(measured.nodes) + " nodes do not hold equally many of " +
                       std::to_string(measured.ranks) + " ranks",
                   {},
                   "correct \"gpus\" or \"nodes\""};
    const GroupLayout layout{measured.ranks, measured.nodes, measured.ranks / measured.nodes};
    const Result<Picos> time = call_time(call, layout, machine);
    if (!time) return time.error();
    const bool fitted = machine.nccl && is_listed(machine.nccl->fitted_to, measured.label);
    answer.rows.push_back({measured.label,
                           {Comparison::Kind::seconds, row, time->seconds(), measured.seconds},
                           fitted});
  }
  return answer;
}

}  // namespace lockstep::sim
