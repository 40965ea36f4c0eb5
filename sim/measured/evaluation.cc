#include "sim/measured/evaluation.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/text.h"

namespace lockstep::sim {
namespace {

bool is_listed(const std::vector<std::string>& list, const std::string& what) {
  return std::find(list.begin(), list.end(), what) != list.end();
}

// True if the machine file has this measurement, and so repeats it rather than predicts it.
bool has_measurement(const Machine& machine, const MeasuredCollective& measured) {
  for (const MeasuredCalls& calls : machine.measured)
    if (calls.from == measured.machine && calls.ranks == measured.ranks)
      for (const MeasuredCalls::Point& point : calls.points)
        if (point.bytes.value == measured.bytes) return true;
  return false;
}

Result<ComparedRow> compare_call(const MeasuredTable& table, std::size_t row,
                                 const MeasuredCollective& measured, const Machine& machine) {
  // The machine's model needs the same number of ranks on each node.
  if (measured.ranks % measured.nodes != 0)
    return Error{fmt::format("{}, row {}: {} nodes cannot hold equally many of {} ranks",
                             table.file, row, measured.nodes, measured.ranks),
                 {},
                 "correct \"gpus\" or \"nodes\""};
  const GroupLayout layout{measured.ranks, measured.nodes, measured.ranks / measured.nodes};
  const Result<Price> priced =
      price({trace::Op::all_reduce, Bytes{measured.bytes}}, layout, machine);
  if (!priced) return priced.error();
  // A price from measurements does not use the model, so the rows that the model was fitted to do
  // not matter then.
  const bool fitted = priced->source == PriceSource::measured
                          ? has_measurement(machine, measured)
                          : machine.nccl && is_listed(machine.nccl->fitted_to, measured.label);
  return ComparedRow{measured.label,
                     {Comparison::Kind::seconds, row, priced->time.seconds(), measured.seconds},
                     fitted};
}

// The shipped machines that have measurements.
Result<std::vector<Machine>> machines_with_measurements() {
  std::vector<Machine> out;
  for (const EmbeddedFile& shipped : shipped_machines()) {
    Result<Machine> machine = parse_machine(std::string(shipped.text), std::string(shipped.path));
    if (!machine) return machine.error();
    if (!machine->measured.empty()) out.push_back(std::move(*machine));
  }
  return out;
}

// The machine that has measurements of this name; null if there is none.
const Machine* machine_of(const std::vector<Machine>& machines, const std::string& name) {
  for (const Machine& machine : machines)
    for (const MeasuredCalls& calls : machine.measured)
      if (calls.from == name) return &machine;
  return nullptr;
}

Error no_such_machine(const std::vector<Machine>& machines, const std::string& name,
                      const std::string& table_file) {
  std::vector<std::string> known;
  for (const Machine& machine : machines)
    for (const MeasuredCalls& calls : machine.measured)
      if (known.empty() || known.back() != calls.from) known.push_back(calls.from);
  return Error{fmt::format("no shipped machine has measurements of \"{}\"", printable(name)),
               {table_file},
               fmt::format("there are {}; name a machine file with --machine", join_and(known, 6))};
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
  // The fastest combination of those that a trainer would try. Some are impossible (the batch is
  // not a multiple of the micro-batch); if all are, the first error is reported.
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
  TableAnswer answer{
      table.file, fmt::format("{} ({})", calibration.name, calibration.origin), table.letters, {}};
  for (std::size_t i = 0; i < table.steps.size(); ++i) {
    const MeasuredStep& step = table.steps[i];
    const auto figures = compare_row(step, i + 1, calibration.cost);
    if (!figures)
      return Error{fmt::format("{}, row {}: {}", table.file, i + 1, figures.error().message),
                   {},
                   figures.error().fix};
    // Rows that the calibration was fitted to do not test it: the report separates them.
    const bool known = is_listed(calibration.fitted_on, step.label);
    for (const Comparison& figure : *figures) answer.rows.push_back({step.label, figure, known});
  }
  return answer;
}

Result<TableAnswer> predict_collectives(const MeasuredTable& table) {
  const Result<std::vector<Machine>> machines = machines_with_measurements();
  if (!machines) return machines.error();
  TableAnswer answer{table.file, "sim/machines", "", {}};
  for (std::size_t i = 0; i < table.collectives.size(); ++i) {
    const Machine* machine = machine_of(*machines, table.collectives[i].machine);
    if (machine == nullptr)
      return no_such_machine(*machines, table.collectives[i].machine, table.file);
    Result<ComparedRow> row = compare_call(table, i + 1, table.collectives[i], *machine);
    if (!row) return row.error();
    answer.rows.push_back(std::move(*row));
  }
  return answer;
}

Result<TableAnswer> predict_on_machine(const MeasuredTable& table, const Machine& machine,
                                       const std::string& machine_file) {
  TableAnswer answer{table.file, machine_file, "", {}};
  for (std::size_t i = 0; i < table.collectives.size(); ++i) {
    Result<ComparedRow> row = compare_call(table, i + 1, table.collectives[i], machine);
    if (!row) return row.error();
    answer.rows.push_back(std::move(*row));
  }
  return answer;
}

}  // namespace lockstep::sim
