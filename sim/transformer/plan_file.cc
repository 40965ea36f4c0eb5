#include "sim/transformer/plan_file.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/documents/document_reader.h"
#include "base/documents/schema_check.h"
#include "base/text.h"
#include "sim/engine/step_program.h"
#include "sim/network/topology.h"
#include "sim/transformer/transformer.h"

namespace lockstep::sim {
namespace {

using Json = nlohmann::json;

// The JSON pointer of a field of Transformer or TrainingPlan: workload_problem() names fields, the
// error message a line of the file.
std::string pointer_of(std::string_view field) {
  for (const std::string_view key : {"layers", "hidden", "heads", "kv_heads", "ffn", "vocabulary"})
    if (field == key) return fmt::format("/model/{}", key);
  if (field == "experts" || field == "experts_per_token") return fmt::format("/model/{}", field);
  if (field == "pipeline") return "/pipeline/stages";
  if (field == "chunks") return "/pipeline/chunks";
  if (field == "data") return "/gpus";
  return fmt::format("/{}", field);
}

std::string times(std::int64_t a, std::int64_t b, std::int64_t c) {
  return fmt::format("{} x {} x {} = {}", a, b, c, a * b * c);
}

class PlanReader {
 public:
  explicit PlanReader(const YamlDocument& document) : read_(document), root_(read_.root()) {}

  Result<PlanFile> read() {
    out_.name = root_["name"];
    out_.calibration = root_["calibration"];
    read_model();
    read_layout();
    out_.gpus_at = read_.location("/gpus");
    out_.dtype_at = read_.location("/dtype");
    out_.gpus_per_node = read_.value_if_there<std::int64_t>("/gpus_per_node");
    check_nodes();
    read_memory();
    read_failures();
    // Values that were refused may be 0: do not combine them.
    if (!read_.problem()) check_together();
    if (read_.problem()) return *read_.problem();
    return std::move(out_);
  }

 private:
  void read_model() {
    const Json& given = root_["model"];
    // Defaults of a model without a published name.
    out_.model.fused_attention = true;
    out_.model.causal = true;
    if (given.is_string()) return published("/model", given);
    if (given.contains("name")) published("/model/name", given["name"]);
    Transformer& m = out_.model;
    // A key of the file, else the published model's value; 0 means there is none.
    const auto count = [&](const char* key, std::int64_t otherwise) {
      if (!given.contains(key) && otherwise == 0)
        read_.refuse("/model", fmt::format("the model has no \"{}\"", key),
                     fmt::format("add \"{}: …\", or name a published model", key));
      return given.value(key, otherwise);
    };
    m.layers = count("layers", m.layers);
    // If the width of a published model is changed, all else stays as published.
    m.hidden = count("hidden", m.hidden);
    m.heads = count("heads", m.heads);
    m.vocabulary = count("vocabulary", m.vocabulary);
    m.kv_heads = given.value("kv_heads", m.kv_heads == 0 ? m.heads : m.kv_heads);
    m.ffn = given.value("ffn", m.ffn == 0 ? 4 * m.hidden : m.ffn);
    m.experts = given.value("experts", m.experts);
    m.experts_per_token = given.value("experts_per_token", m.experts_per_token);
    if (m.experts_per_token == 0 && m.experts > 0)
      m.experts_per_token = std::min<std::int64_t>(2, m.experts);
    if (m.experts == 0 && given.contains("experts_per_token"))
      read_.refuse("/model/experts_per_token", "the model has no experts",
                   "add \"experts: …\", or leave it out");
    m.gated = given.value("gated", m.gated);
    m.tied_embeddings = given.value("tied_embeddings", m.tied_embeddings);
    // Causal goes with fused_attention unless it is given: only a fused kernel skips what the mask
    // hides.
    m.causal = given.value("causal", given.value("fused_attention", m.causal));
    m.fused_attention = given.value("fused_attention", m.fused_attention);
    m.diffusion = given.value("diffusion", m.diffusion);
    m.two_stream_layers = given.value("two_stream_layers", m.two_stream_layers);
    // A published model in another depth.
    if (!given.contains("two_stream_layers"))
      m.two_stream_layers = std::min(m.two_stream_layers, m.layers);
    if (m.two_stream_layers > m.layers)
      read_.refuse(
          "/model/two_stream_layers",
          fmt::format("{} of {} layers cannot have two streams", m.two_stream_layers, m.layers),
          "give at most the layers");
    m.side_parameters = given.value("side_parameters", m.side_parameters);
  }

  void published(const std::string& pointer, const std::string& name) {
    const std::vector<std::string> names = published_model_names();
    const std::optional<Transformer> model = published_model(name);
    if (!model) {
      const std::string meant = did_you_mean(name, names);
      return read_.refuse(
          pointer,
          fmt::format("no published model is known as \"{}\"{}{}", printable(name),
                      meant.empty() ? "" : "; ", meant),
          fmt::format(
              "known are {}; any other one goes by its hyper-parameters: model: {{layers: …, "
              "hidden: …, heads: …, vocabulary: …}}",
              join_and(names)));
    }
    out_.model = *model;
    out_.model_name = name;
  }

  void read_layout() {
    TrainingPlan& plan = out_.plan;
    const Json pipeline = root_.value("pipeline", Json::object());
    plan.sequence = root_["sequence"];
    plan.global_batch = root_["global_batch"];
    plan.micro_batch = root_.value("micro_batch", 1);
    plan.tensor = root_.value("tensor", 1);
    plan.context = root_.value("context", 1);
    plan.expert = root_.value("expert", 1);
    plan.expert_skew = root_.value("expert_skew", 1.0);
    plan.pipeline = pipeline.value("stages", 1);
    const Result<PipelineSchedule> schedule =
        parse_pipeline_schedule(pipeline.value("schedule", "1f1b"));
    LOCKSTEP_CHECK(static_cast<bool>(schedule), "the schema has the schedules' names");
    plan.schedule = *schedule;
    plan.chunks = pipeline.value("chunks", in_chunks() ? 2 : 1);
    plan.short_ends = pipeline.value("split", "even") == "short_ends";
    plan.sharding = static_cast<Sharding>(root_.value("zero", 0));
    plan.scatters_each_micro_batch = root_.value("scatter", "step") == "micro_batch";
    plan.recompute = choice<Recompute>(root_.value("recompute", "none"), kRecomputeNames);
    plan.sequence_parallel = root_.value("sequence_parallel", false);
    plan.overlapped_tensor = root_.value("async_tensor", false);
    const Json overlap = root_.value("overlap", Json::object());
    plan.overlapped_gradients = overlap.value("gradients", false);
    plan.overlapped_context = overlap.value("context", false);
    plan.overlapped_pipeline = overlap.value("pipeline", false);
    plan.fp8 = root_.value("dtype", "bfloat16") == "float8";
    plan.compiled = root_.value("compile", false);
    plan.plain_kernels = root_.value("kernels", "fused") == "pytorch";
    plan.short_gradients = root_.value("gradient_dtype", "float32") == "bfloat16";
    const std::int64_t gpus = root_["gpus"];
    const std::int64_t of_model = std::int64_t{plan.tensor} * plan.context * plan.pipeline;
    if (gpus % of_model != 0)
      return read_.refuse(
          "/gpus",
          fmt::format("{} GPUs do not divide by tensor x context x pipeline.stages = {}", gpus,
                      times(plan.tensor, plan.context, plan.pipeline)),
          gpus < of_model
              ? fmt::format("use at least {} GPUs, or cut less", of_model)
              : fmt::format("use {} or {} GPUs, or cut otherwise", gpus / of_model * of_model,
                            (gpus / of_model + 1) * of_model));
    if (gpus / of_model > kMaxData)
      return read_.refuse(
          "/gpus",
          fmt::format("{} data-parallel ranks are more than {}", gpus / of_model, kMaxData),
          "use fewer GPUs, or cut the model over more of them");
    plan.data = static_cast<std::int32_t>(gpus / of_model);
  }

  bool in_chunks() const {
    return out_.plan.schedule == PipelineSchedule::interleaved ||
           out_.plan.schedule == PipelineSchedule::zbv;
  }

  void check_nodes() {
    const std::int64_t gpus = root_["gpus"];
    const std::int64_t each = out_.gpus_per_node.value_or(1);
    if (gpus > each && gpus % each != 0)
      read_.refuse("/gpus", fmt::format("{} GPUs do not fill nodes of {}", gpus, each),
                   fmt::format("use {} or {}", gpus / each * each, (gpus / each + 1) * each));
  }

  void read_memory() {
    if (!read_.has("/gpu_memory")) return;
    out_.gpu_memory = read_.quantity("/gpu_memory", parse_bytes);
    if (out_.gpu_memory->value == 0)
      read_.refuse("/gpu_memory", "a GPU without memory holds nothing", "gpu_memory: 80GB");
  }

  void read_failures() {
    if (!read_.has("/failures")) return;
    PlanFile::Failures out;
    out.gpu_mtbf_hours = root_["failures"]["gpu_mtbf_hours"];
    out.checkpoint = read_.quantity("/failures/checkpoint", parse_duration);
    out.restart = read_.quantity("/failures/restart", parse_duration);
    if (read_.has("/failures/every")) {
      out.every = read_.quantity("/failures/every", parse_duration);
      if (out.every->value == 0)
        read_.refuse("/failures/every", "a job that only saves checkpoints makes no progress",
                     "every: 30min");
    }
    out_.failures = out;
  }

  void check_together() {
    if (const auto wrong = workload_problem(out_.model, out_.plan))
      return read_.refuse(pointer_of(wrong->field), wrong->error.message, wrong->error.fix);
    const TrainingPlan& plan = out_.plan;
    // No formula covers tensor ranks that hold the same keys and values twice.
    whole(out_.model.kv_heads, "kv_heads", plan.tensor, "tensor", "/tensor");
    whole(out_.model.ffn, "ffn", plan.tensor, "tensor", "/tensor");
    if (plan.sequence_parallel)
      whole(plan.sequence / plan.context, plan.context > 1 ? "sequence / context" : "sequence",
            plan.tensor, "tensor, over which sequence_parallel cuts it,", "/tensor");
    if (plan.plain_kernels && !out_.model.gated)
      read_.refuse("/kernels",
                   "PyTorch's operators are counted for gated layers, and this model has none",
                   "leave kernels out, or give the model gated: true");
    if (plan.scatters_each_micro_batch && plan.sharding != Sharding::zero2)
      read_.refuse("/scatter",
                   plan.sharding == Sharding::zero3
                       ? "zero: 3 scatters gradients as its layers, or in a pipeline its stages, "
                         "have them"
                       : "only with zero: 2 is a rank left with a part of the gradients",
                   "leave scatter out, or write zero: 2");
    check_schedule();
  }

  void whole(std::int64_t all, const char* what, std::int64_t ranks, const char* over,
             const char* pointer) {
    if (all % ranks != 0)
      read_.refuse(pointer, fmt::format("{} {} does not divide by {} {}", what, all, over, ranks),
                   "change one of the two");
  }

  void check_schedule() {
    const TrainingPlan& plan = out_.plan;
    const std::string name(pipeline_schedule_name(plan.schedule));
    if (plan.schedule == PipelineSchedule::zbv && plan.chunks != 2)
      read_.refuse("/pipeline/chunks",
                   fmt::format("zbv lays the model over the stages and back, in 2 chunks, not {}",
                               plan.chunks),
                   "leave chunks out");
    if (!in_chunks() && plan.chunks != 1)
      read_.refuse(
          "/pipeline/chunks",
          fmt::format("{} has one piece of the model on each stage, not {}", name, plan.chunks),
          "leave chunks out, or use schedule: interleaved");
    const std::int64_t each = plan.micro_batches();
    if (plan.schedule == PipelineSchedule::interleaved && each % plan.pipeline != 0)
      read_.refuse(
          "/global_batch",
          fmt::format("interleaved takes micro-batches in groups of one per stage, and {} of each "
                      "data-parallel rank are not a multiple of {}",
                      each, plan.pipeline),
          "change global_batch, micro_batch or pipeline.stages, or use schedule: 1f1b");
    // Tasks of the pipeline's simulation: micro-batches x passes x pieces, compared without
    // overflow.
    const std::int64_t passes = splits_backward(plan.schedule) ? 3 : 2;
    const std::int64_t pieces = plan.pieces();
    if (each > kMaxStepTasks / passes / pieces)
      read_.refuse(
          "/global_batch",
          fmt::format("a step of {} micro-batches on {} pieces of the model is too long to be "
                      "simulated",
                      each, pieces),
          "use a smaller global_batch or larger micro-batches: a pipeline's middle only "
          "repeats itself");
  }

  static constexpr std::int64_t kMaxData = std::int64_t{1} << 15U;  // as workload_problem()

  DocumentReader read_;
  const Json& root_;
  PlanFile out_;
};

}  // namespace

Result<PlanFile> read_plan(const YamlDocument& document) {
  static const DocumentSchema schema(Json::parse(plan_schema()));
  if (auto problem = schema.check(document, "docs/simulate-workloads.md shows a whole file"))
    return *problem;
  return PlanReader(document).read();
}

bool is_plan(const std::string& text) {
  const Result<YamlDocument> document = parse_yaml(text, "");
  return document && document->value.is_object() && document->value.contains("plan");
}

Status check_float8(const CostParameters& calibration, const Location& dtype_at) {
  if (!calibration.nccl || calibration.nccl->gpu >= GpuGeneration::hopper) return Status::ok();
  return Error{
      fmt::format(
          "dtype: float8 on GPUs of the generation {} (nccl.gpu), which multiply in 16 bits",
          calibration.nccl->gpu == GpuGeneration::volta ? "volta" : "ampere"),
      dtype_at, "write dtype: bfloat16, or take machines of the generation hopper or later"};
}

Result<CostParameters> plan_cost(const PlanFile& plan, const CostParameters& calibration) {
  CostParameters out = calibration;
  if (plan.plan.fp8)
    if (const Status can = check_float8(calibration, plan.dtype_at); !can) return can.error();
  if (plan.gpus_per_node) out.ranks_per_node = *plan.gpus_per_node;
  const std::int64_t gpus = plan.plan.ranks();
  const std::int64_t each = out.ranks_per_node;
  if (gpus > each && gpus % each != 0)
    return Error{
        fmt::format("{} GPUs do not fill the nodes of {} that the calibration has", gpus, each),
        plan.gpus_at,
        fmt::format("use {} or {} GPUs, or say gpus_per_node", gpus / each * each,
                    (gpus / each + 1) * each)};
  // The machine was checked with its own nodes.
  if (out.network)
    if (const auto problem = topology_problem(*out.network, out.ranks_per_node))
      return Error{fmt::format("network{}: {}", problem->key, problem->message), {}, problem->fix};
  return out;
}

}  // namespace lockstep::sim
