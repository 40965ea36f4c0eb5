// NVIDIA's tables of Megatron under NeMo: transformers of published shapes on DGX machines.
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

// {"model": "llama3-405b", "layers": 42, "gpus": 192, "tp": 8, "pp": 3, "cp": 2, "vp": 7,
//  "mbs": 1, "gbs": 252, "seq": 8192, "dtype": "bf16", "step_s": 16.93}; layers, cp, vp and mbs may
// be left out, and so may what a job has otherwise than the published model or NVIDIA's recipes:
// "vocab": 51200, "kv_heads": 16, "split": "short_ends", "tensor_calls": "exposed".
MeasuredStep nemo_step(TableRow& row) {
  MeasuredStep step;
  const std::string name = row.text("model");
  if (const auto known = published_model(name))
    step.model = *known;
  else
    row.refuse(fmt::format("model \"{}\" is not known", printable(name)),
               fmt::format("known are {}", join_and(published_model_names())));
  const auto count = [&](const char* key, std::int64_t published) {
    return row.count(key, std::max<std::int64_t>(published, 1));
  };
  step.model.layers = count("layers", step.model.layers);
  step.model.vocabulary = count("vocab", step.model.vocabulary);
  step.model.kv_heads = count("kv_heads", step.model.kv_heads);
  // Transformer Engine's attention is fused, also for GPTs.
  step.model.fused_attention = true;
  step.model.causal = !step.model.diffusion;
  TrainingPlan& plan = step.plan;
  plan.tensor = static_cast<std::int32_t>(std::min<std::int64_t>(row.count("tp"), 1 << 15));
  plan.pipeline = static_cast<std::int32_t>(std::min<std::int64_t>(row.count("pp"), 1 << 15));
  plan.context = static_cast<std::int32_t>(std::min<std::int64_t>(row.count("cp", 1), 1 << 15));
  plan.chunks = static_cast<std::int32_t>(std::min<std::int64_t>(row.count("vp", 1), 1 << 14));
  if (plan.chunks > 1) plan.schedule = PipelineSchedule::interleaved;
  plan.short_ends = row.one_of("split", {"even", "short_ends"}, "even") == 1;
  const std::int64_t gpus = row.count("gpus");
  const std::int64_t rest = std::int64_t{plan.tensor} * plan.context * plan.pipeline;
  if (gpus % rest != 0)
    row.refuse(fmt::format("{} GPUs do not divide by tp x cp x pp", gpus), "correct the row");
  plan.data =
      static_cast<std::int32_t>(std::clamp<std::int64_t>(gpus / rest, 1, std::int64_t{1} << 30U));
  plan.micro_batch = row.count("mbs", 1);
  plan.global_batch = row.count("gbs");
  plan.sequence = row.count("seq");
  plan.fp8 = row.one_of("dtype", {"bf16", "fp8"}, "bf16") == 1;
  // NeMo's recipes: Megatron's distributed optimizer, gradients in bfloat16 (grad_reduce_in_fp32 is
  // off), all communication overlapped where possible, and kernels fused by Transformer Engine.
  plan.sharding = Sharding::zero1;
  plan.short_gradients = true;
  // The two streams of a diffusion transformer are not split along the sequence.
  plan.sequence_parallel = plan.tensor > 1 && !step.model.diffusion;
  plan.overlapped_tensor =
      row.one_of("tensor_calls", {"overlapped", "exposed"}, "overlapped") == 0 && plan.tensor > 1;
  plan.overlapped_gradients = plan.overlapped_context = true;
  plan.overlapped_pipeline = plan.chunks > 1;
  plan.compiled = true;
  step.seconds = row.number("step_s");
  step.label =
      fmt::format("{}, {} layers, {} GPUs, B {}, b {}, t {} c {} d {} p {} x {}, {}", name,
                  step.model.layers, gpus, plan.global_batch, plan.micro_batch, plan.tensor,
                  plan.context, plan.data, plan.pipeline, plan.chunks, plan.fp8 ? "fp8" : "bf16");
  return step;
}

}  // namespace

Result<MeasuredTable> read_nemo(const nlohmann::json& root, const std::string& file) {
  MeasuredTable table;
  table.file = file;
  table.letters =
      "B sequences of a step, b of a micro-batch; tensor (t), context (c), data (d), pipeline (p) "
      "ranks, x chunks of a stage";
  TableRow whole(root, file);
  table.machine_type = whole.text("machine", "dgx-h100");
  whole.refuse_slips();
  if (const Status read = whole.status(); !read) return read.error();
  std::size_t number = 0;
  for (const nlohmann::json& values : root["rows"]) {
    TableRow row(values, fmt::format("{}, row {}", file, ++number));
    MeasuredStep step = nemo_step(row);
    row.refuse_slips();
    if (const Status read = row.status(); !read) return read.error();
    if (const Status can_be = check_workload(step.model, step.plan); !can_be)
      return Error{
          fmt::format("{}: {}", row.location(), can_be.error().message), {}, can_be.error().fix};
    table.steps.push_back(std::move(step));
  }
  return table;
}

}  // namespace lockstep::sim
