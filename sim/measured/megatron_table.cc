// Tables of Megatron's training steps: vTrain's, and that of the paper of 2021.
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "sim/measured/table_row.h"
#include "sim/transformer/transformer.h"

namespace lockstep::sim {

namespace {

using nlohmann::json;

// The models of both: GPT with a feed-forward block four times as wide.
void set_gpt(MeasuredStep& step, std::int64_t layers, std::int64_t hidden, std::int64_t heads,
             std::int64_t vocabulary) {
  step.model.layers = layers;
  step.model.hidden = hidden;
  step.model.heads = step.model.kv_heads = heads;
  step.model.ffn = 4 * hidden;
  step.model.vocabulary = vocabulary;
}

void set_label(MeasuredStep& step) {
  const TrainingPlan& p = step.plan;
  step.label = fmt::format("{} GPUs, B {}{}, h {}, L {}, t {} d {} p {}", p.ranks(), p.global_batch,
                           step.micro_batch_unknown ? "" : fmt::format(", b {}", p.micro_batch),
                           step.model.hidden, step.model.layers, p.tensor, p.data, p.pipeline);
}

// vTrain's models have GPT-2's vocabulary, as its configuration files say.
constexpr std::int64_t kVocabulary = 51200;

// One row. Columns: "# layers", "hidden size", …, "iteration time (ms)".
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

// "seq" and "vocab" are given once for the whole table.
MeasuredStep megatron_step(TableRow& row, TableRow& table) {
  MeasuredStep step;
  set_gpt(step, row.count("layers"), row.count("hidden"), row.count("heads"),
          table.count("vocab", kVocabulary));
  step.plan.sequence = table.count("seq", 2048);
  step.plan.global_batch = row.count("batch");
  step.plan.tensor = static_cast<std::int32_t>(row.count("tp"));
  step.plan.pipeline = static_cast<std::int32_t>(row.count("pp"));
  const std::int64_t gpus = row.count("gpus");
  // Data parallelism is not a column: it is what remains of the GPUs.
  const std::int64_t model_ranks = std::int64_t{step.plan.tensor} * step.plan.pipeline;
  if (gpus % model_ranks != 0)
    row.refuse(fmt::format("{} GPUs do not divide by tp x pp", gpus), "correct the row");
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

// What is recomputed is not a column: the table says it once, or unsaid.json for it.
Recompute recomputed(TableRow& table, const std::string& machine_type) {
  static const json unsaid = json::parse(unsaid_in_tables());
  return table.recompute("recompute",
                         unsaid[machine_type]["recompute"].get_ref<const std::string&>());
}

}  // namespace

Result<MeasuredTable> read_step_columns(const nlohmann::json& root, const std::string& file) {
  const nlohmann::json& columns = root["columns"];
  const bool vtrain = has_column(columns, "iteration time (ms)");
  if (!vtrain && !has_column(columns, "iteration_s_derived"))
    return Error{"the table's columns name no measured time",
                 {file},
                 "known are \"iteration time (ms)\" (vTrain) and \"iteration_s_derived\" "
                 "(Megatron)"};
  MeasuredTable table;
  table.file = file;
  table.letters =
      "B sequences of a step, b of a micro-batch, h hidden size, L layers; tensor (t), data (d), "
      "pipeline (p) ranks";
  bool one_node = true;
  TableRow whole(root, file);
  std::size_t number = 0;
  for (const nlohmann::json& values : root["rows"]) {
    TableRow row(values, columns, fmt::format("{}, row {}", file, ++number));
    MeasuredStep step = vtrain ? vtrain_step(row) : megatron_step(row, whole);
    if (const Status read = row.status(); !read) return read.error();
    if (const Status can_be = check_workload(step.model, step.plan); !can_be)
      return Error{
          fmt::format("{}: {}", row.location(), can_be.error().message), {}, can_be.error().fix};
    set_label(step);
    // A table whose plans all fit 8 GPUs was measured on one node, and has its own calibration.
    one_node = one_node && step.plan.ranks() <= 8;
    table.steps.push_back(std::move(step));
  }
  table.machine_type = !vtrain ? "dgx-a100" : one_node ? "a100-node" : "a100-cluster";
  const Recompute recompute = recomputed(whole, table.machine_type);
  whole.refuse_slips();
  if (const Status read = whole.status(); !read) return read.error();
  for (MeasuredStep& step : table.steps) step.plan.recompute = recompute;
  return table;
}

}  // namespace lockstep::sim
