// torchtitan's tables: Llama 3 under FSDP, with tensor, context and pipeline parallelism.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "sim/measured/table_row.h"
#include "sim/transformer/transformer.h"

namespace lockstep::sim {

namespace {

using nlohmann::json;

constexpr double kGiB = 1024.0 * 1024 * 1024;

void set_parallelism(MeasuredStep& step, TableRow& row) {
  TrainingPlan& plan = step.plan;
  plan.tensor = static_cast<std::int32_t>(row.count("tp", 1));
  plan.context = static_cast<std::int32_t>(row.count("cp", 1));
  plan.pipeline = static_cast<std::int32_t>(row.count("pp", 1));
  // Checked before they are multiplied.
  for (const std::int32_t ranks : {plan.tensor, plan.context, plan.pipeline})
    if (ranks > 1 << 15) {
      row.refuse("tp, cp or pp is above 32768", "correct the row");
      return;
    }
  const std::int64_t rest = std::int64_t{plan.tensor} * plan.context * plan.pipeline;
  const std::int64_t gpus = row.count("gpus");
  if (gpus % rest != 0)
    row.refuse(fmt::format("{} GPUs do not divide by tp x cp x pp", gpus), "correct the row");
  plan.data = static_cast<std::int32_t>(std::max<std::int64_t>(1, gpus / rest));
  const std::int64_t local = row.count("local_batch");
  plan.global_batch = local * plan.data;
  // Without a pipeline a local batch is one micro-batch. With one it is split into as many as there
  // are stages: the default of torchtitan's pipeline_parallel_microbatches.
  plan.micro_batch = plan.pipeline > 1 ? std::max<std::int64_t>(1, local / plan.pipeline) : local;
  plan.sequence = row.count("seq", 8192);
  if (row.text("schedule").starts_with("Interleaved")) {
    plan.schedule = PipelineSchedule::interleaved;
    plan.chunks = 2;
  }
}

// torchtitan's generate_split_points() at the end of 2024 (parallelisms/pipelining_utils.py) gives
// what layers are left over to the pieces after the first one. 126 layers over 8 or 16 pieces leave
// 6 or 14: all but the first and the last piece have one more.
bool splits_with_short_ends(const Transformer& model, const TrainingPlan& plan) {
  return plan.pieces() > 2 && model.layers % plan.pieces() == plan.pieces() - 2;
}

Result<MeasuredStep> read_step(TableRow& row) {
  MeasuredStep step;
  const std::string name = row.text("model");
  // "8B" gives "llama3-8b".
  const bool billions = name.ends_with('B');
  const auto known = published_model(fmt::format("llama3-{}b", name.substr(0, name.find('B'))));
  if (billions && known)
    step.model = *known;
  else
    row.refuse(fmt::format("model \"{}\" is not known", printable(name)),
               "known are 8B, 70B and 405B");
  set_parallelism(step, row);
  TrainingPlan& plan = step.plan;
  plan.short_ends = splits_with_short_ends(step.model, plan);
  plan.sharding = Sharding::zero3;
  plan.sequence_parallel = plan.tensor > 1;
  plan.recompute = row.recompute("ac", "none");
  // For example tech "FSDP + compile + fp8", quant "float8".
  const std::string how = fmt::format("{} {}", row.text("tech"), row.text("quant"));
  plan.plain_kernels = true;
  plan.compiled = how.find("compile") != std::string::npos || row.has("vanilla");
  plan.fp8 = how.find("fp8") != std::string::npos || how.find("float8") != std::string::npos;
  plan.overlapped_tensor = how.find("asyncTP") != std::string::npos;
  if (const auto gib = row.number_if_there("mem_gib")) step.memory_bytes = *gib * kGiB;
  step.as_tokens = true;
  step.label = fmt::format(
      "{}, {} GPUs, seq {}, b {}, t {} c {} d {} p {}{}{}{}{}", row.text("model"),
      row.count("gpus"), plan.sequence, row.count("local_batch"), plan.tensor, plan.context,
      plan.data, plan.pipeline, plan.chunks > 1 ? " x 2" : "", plan.compiled ? ", compiled" : "",
      plan.fp8 ? ", fp8" : "", plan.overlapped_tensor ? ", async" : "");
  row.refuse_slips();
  if (const Status read = row.status(); !read) return read.error();
  if (const Status can_be = check_workload(step.model, plan); !can_be)
    return Error{
        fmt::format("{}: {}", row.location(), can_be.error().message), {}, can_be.error().fix};
  return step;
}

void add_step(MeasuredTable& table, MeasuredStep step, double tokens_per_second) {
  step.seconds = static_cast<double>(step.plan.global_batch) *
                 static_cast<double>(step.plan.sequence) / tokens_per_second /
                 static_cast<double>(step.plan.ranks());
  table.steps.push_back(std::move(step));
}

}  // namespace

Result<MeasuredTable> read_torchtitan(const nlohmann::json& root, const std::string& file) {
  MeasuredTable table;
  table.file = file;
  table.letters =
      "b sequences of a step on each data-parallel rank; tensor (t), context (c), data (d), "
      "pipeline (p) ranks, x chunks of a stage";
  TableRow whole(root, file);
  const std::string hardware = whole.text("hardware");
  whole.refuse_slips();
  if (const Status read = whole.status(); !read) return read.error();
  table.machine_type = hardware.find("H200") != std::string::npos ? "h200-cluster" : "h100-cluster";
  std::size_t number = 0;
  for (const nlohmann::json& values : root["rows"]) {
    TableRow row(values, fmt::format("{}, row {}", file, ++number));
    // A row with both columns has two measurements: without and with async tensor parallelism.
    const bool both = row.has("vanilla") && row.has("async_");
    const double first = row.number(both ? "vanilla" : "tps_gpu");
    const double second = both ? row.number("async_") : 1;
    Result<MeasuredStep> step = read_step(row);
    if (!step) return step.error();
    add_step(table, *step, first);
    if (!both) continue;
    step->plan.overlapped_tensor = true;
    step->label += ", async";
    add_step(table, std::move(*step), second);
  }
  return table;
}

}  // namespace lockstep::sim
