// NVIDIA's tables of Megatron under NeMo: transformers of published shapes on DGX machines.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "sim/transformer/table_row.h"
#include "sim/transformer/transformer.h"

namespace lockstep::sim {

namespace {

using nlohmann::json;

// {"model": "llama3-405b", "layers": 42, "gpus": 192, "tp": 8, "pp": 3, "cp": 2, "vp": 7,
//  "mbs": 1, "gbs": 252, "seq": 8192, "dtype": "bf16", "step_s": 16.93}; layers, cp, vp and mbs may
// be left out.
MeasuredStep nemo_step(TableRow& row) {
  MeasuredStep step;
  const std::string name = row.text("model");
  if (const auto known = published_model(name))
    step.model = *known;
  else
    row.refuse(fmt::format("model \"{}\" is not known", printable(name)),
               fmt::format("known are {}", join_and(published_model_names())));
  step.model.layers = row.count("layers", std::max<std::int64_t>(step.model.layers, 1));
  // Transformer Engine's attention is fused, also for GPTs.
  step.model.fused_attention = step.model.causal = true;
  TrainingPlan& plan = step.plan;
  plan.tensor = static_cast<std::int32_t>(std::min<std::int64_t>(row.count("tp"), 1 << 15));
  plan.pipeline = static_cast<std::int32_t>(std::min<std::int64_t>(row.count("pp"), 1 << 15));
  plan.context = static_cast<std::int32_t>(std::min<std::int64_t>(row.count("cp", 1), 1 << 15));
  plan.chunks = static_cast<std::int32_t>(std::min<std::int64_t>(row.count("vp", 1), 1 << 14));
  if (plan.chunks > 1) plan.schedule = PipelineSchedule::interleaved;
  const std::string split = row.text("split", "even");
  if (split != "even" && split != "short_ends")
    row.refuse(fmt::format("split \"{}\" is not known", printable(split)),
               "write even or short_ends");
  plan.short_ends = split == "short_ends";
  const std::int64_t gpus = row.count("gpus");
  const std::int64_t rest = std::int64_t{plan.tensor} * plan.context * plan.pipeline;
  if (gpus % rest != 0)
    row.refuse(fmt::format("{} GPUs do not divide by tp x cp x pp", gpus), "correct the row");
  plan.data =
      static_cast<std::int32_t>(std::clamp<std::int64_t>(gpus / rest, 1, std::int64_t{1} << 30U));
  plan.micro_batch = row.count("mbs", 1);
  plan.global_batch = row.count("gbs");
  plan.sequence = row.count("seq");
  const std::string dtype = row.text("dtype", "bf16");
  if (dtype != "bf16" && dtype != "fp8")
    row.refuse(fmt::format("dtype \"{}\" is not known", printable(dtype)), "write bf16 or fp8");
  plan.fp8 = dtype == "fp8";
  // NeMo's recipes: Megatron's distributed optimizer, all communication overlapped where possible,
  // and kernels fused by Transformer Engine.
  plan.sharding = Sharding::zero1;
  plan.sequence_parallel = plan.overlapped_tensor = plan.tensor > 1;
  plan.overlapped_gradients = plan.overlapped_context = true;
  plan.overlapped_pipeline = plan.chunks > 1;
  plan.compiled = true;
  step.seconds = row.number("step_s");
  step.label = fmt::format("{}, {} layers, {} GPUs, B {}, b {}, t {} c {} d {} p {} x {}, {}", name,
                           step.model.layers, gpus, plan.global_batch, plan.micro_batch,
                           plan.tensor, plan.context, plan.data, plan.pipeline, plan.chunks, dtype);
  return step;
}

}  // namespace

Result<MeasuredTable> read_nemo(const nlohmann::json& root, const std::string& file) {
  MeasuredTable table;
  table.file = file;
  table.machine_type = TableRow(root, file).text("machine", "dgx-h100");
  std::size_t number = 0;
  for (const nlohmann::json& values : root["rows"]) {
    TableRow row(values, fmt::format("{}, row {}", file, ++number));
    MeasuredStep step = nemo_step(row);
    if (const Status read = row.status(); !read) return read.error();
    if (const Status can_be = check_workload(step.model, step.plan); !can_be)
      return Error{
          fmt::format("{}: {}", row.location(), can_be.error().message), {}, can_be.error().fix};
    table.steps.push_back(std::move(step));
  }
  return table;
}

}  // namespace lockstep::sim
