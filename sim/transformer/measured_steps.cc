// Tables of Megatron's training steps: vTrain's, and the one of the paper of 2021.
#include <string>

#include "base/text.h"
#include "sim/transformer/measured_columns.h"

namespace lockstep::sim {
namespace {

using nlohmann::json;

// The models of both: GPT with a feed-forward block four times as wide, all recomputed.
void set_gpt(MeasuredStep& step, std::int64_t layers, std::int64_t hidden, std::int64_t heads,
             std::int64_t vocabulary) {
  step.model.layers = layers;
  step.model.hidden = hidden;
  step.model.heads = step.model.kv_heads = heads;
  step.model.ffn = 4 * hidden;
  step.model.vocabulary = vocabulary;
  step.plan.recompute = Recompute::full;
}

void set_label(MeasuredStep& step) {
  const TrainingPlan& p = step.plan;
  step.label = std::to_string(p.ranks()) + " GPUs, B " + std::to_string(p.global_batch) +
               (step.micro_batch_unknown ? "" : ", b " + std::to_string(p.micro_batch)) + ", h " +
               std::to_string(step.model.hidden) + ", L " + std::to_string(step.model.layers) +
               ", t " + std::to_string(p.tensor) + " d " + std::to_string(p.data) + " p " +
               std::to_string(p.pipeline);
}

// vTrain's models have GPT-2's vocabulary, as its configuration files say.
constexpr std::int64_t kVocabulary = 51200;

MeasuredStep vtrain_step(TableRow& row) {
  MeasuredStep step;
  set_gpt(step, row.count("# layers"), row.count("hidden size"), row.count("attention heads"),
          kVocabulary);
  step.plan.sequence = row.count("sequence length");
  step.plan.global_batch = row.count("global batch");
  step.plan.micro_batch = row.count("micro batch");
  step.plan.tensor = static_cast<std::int32_t>(row.count("tensor parallelism"));
  step.plan.data = static_cast<std::int32_t>(row.count("data parallelism"));
  step.plan.pipeline = static_cast<std::int32_t>(row.count("pipeline parallelism"));
  step.seconds = row.number("iteration time (ms)") * 1e-3;
  return step;
}

MeasuredStep megatron_step(TableRow& row, const json& root) {
  TableRow table(root, row.place());
  MeasuredStep step;
  set_gpt(step, row.count("layers"), row.count("hidden"), row.count("heads"),
          table.count("vocab", kVocabulary));
  step.plan.sequence = table.count("seq", 2048);
  step.plan.global_batch = row.count("batch");
  step.plan.tensor = static_cast<std::int32_t>(row.count("tp"));
  step.plan.pipeline = static_cast<std::int32_t>(row.count("pp"));
  const std::int64_t gpus = row.count("gpus");
  const std::int64_t model_ranks = std::int64_t{step.plan.tensor} * step.plan.pipeline;
  if (gpus % model_ranks != 0)
    row.refuse(std::to_string(gpus) + " GPUs do not divide by tp x pp", "correct the row");
  else
    step.plan.data = static_cast<std::int32_t>(gpus / model_ranks);
  step.micro_batch_unknown = true;
  step.seconds = row.number("iteration_s_derived");
  return step;
}

bool has_column(const json& columns, std::string_view name) {
  for (const json& column : columns)
    if (column.is_string() && column.get_ref<const std::string&>() == name) return true;
  return false;
}

}  // namespace

Result<MeasuredTable> read_step_columns(const json& root, const std::string& file) {
  const json& columns = root["columns"];
  const bool vtrain = has_column(columns, "iteration time (ms)");
  if (!vtrain && !has_column(columns, "iteration_s_derived"))
    return Error{"the table's columns name no measured time",
                 {file},
                 "known are \"iteration time (ms)\" (vTrain) and \"iteration_s_derived\" "
                 "(Megatron)"};
  MeasuredTable table;
  table.file = file;
  bool one_node = true;
  std::size_t number = 0;
  for (const json& values : root["rows"]) {
    TableRow row(values, columns, file + ", row " + std::to_string(++number));
    MeasuredStep step = vtrain ? vtrain_step(row) : megatron_step(row, root);
    if (const Status read = row.status(); !read) return read.error();
    if (const Status can_be = check_workload(step.model, step.plan); !can_be)
      return Error{row.place() + ": " + can_be.error().message, {}, can_be.error().fix};
    set_label(step);
    one_node = one_node && step.plan.ranks() <= 8;
    table.steps.push_back(std::move(step));
  }
  table.machine_type = !vtrain ? "a100-selene" : one_node ? "a100-node" : "a100-cluster";
  return table;
}

}  // namespace lockstep::sim
