#include "sim/transformer/transformer.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace lockstep::sim {
namespace {

WorkloadProblem problem(std::string_view field, std::string message, std::string fix) {
  return {field, Error{std::move(message), {}, std::move(fix)}};
}

struct Count {
  std::string_view name;
  std::int64_t value;
};

// Above these, products of counts exceed 64 bits; no model comes near them.
constexpr std::int64_t kMax = std::int64_t{1} << 20U;
constexpr std::int64_t kMaxLayers = std::int64_t{1} << 14U;
constexpr std::int64_t kMaxRanksPerDimension = std::int64_t{1} << 15U;
constexpr std::int64_t kMaxExperts = std::int64_t{1} << 12U;

std::int64_t most_of(std::string_view name) {
  if (name == "layers" || name == "chunks") return kMaxLayers;
  const bool ranks = name == "tensor" || name == "context" || name == "pipeline" || name == "data";
  return ranks ? kMaxRanksPerDimension : kMax;
}

// A problem of `field` unless `part` divides `whole`.
std::optional<WorkloadProblem> indivisible(std::string_view field, Count part, Count whole) {
  if (whole.value % part.value == 0) return std::nullopt;
  return problem(
      field,
      fmt::format("{} {} does not divide by {} {}", whole.name, whole.value, part.name, part.value),
      "change one of the two");
}

// Floating-point operations per token of a layer's linear parts, forward: queries and output h·h
// each, keys and values h·kv each, and the feed-forward matrices, of a mixture those that a token
// goes through; a product and a sum per weight.
double linear_flops(const Transformer& model) {
  const auto h = static_cast<double>(model.hidden);
  const double kv = h * static_cast<double>(model.kv_heads) / static_cast<double>(model.heads);
  const double matrices = model.gated ? 3 : 2;
  const double blocks =
      matrices * static_cast<double>(model.blocks_per_token()) * static_cast<double>(model.ffn);
  // The router of a mixture is a product with a column for each expert.
  return 2 * h * (h + 2 * kv + h + blocks + static_cast<double>(model.experts));
}

// … of its attention: scores and values, 2·s·h each; with a causal kernel half of it.
double attention_flops(const Transformer& model, std::int64_t sequence) {
  const double all = 4.0 * static_cast<double>(sequence) * static_cast<double>(model.hidden);
  return model.causal ? all / 2 : all;
}

// … of what selective recompute of a gated layer repeats: keys, the attention's output and one of
// the two up-projections (see layer_times()).
double every_second_flops(const Transformer& model) {
  const auto h = static_cast<double>(model.hidden);
  const double kv = h * static_cast<double>(model.kv_heads) / static_cast<double>(model.heads);
  return 2 * h *
         (kv + h + static_cast<double>(model.blocks_per_token()) * static_cast<double>(model.ffn));
}

// The parameters of one feed-forward block: its matrices, and, unless it is gated, their biases.
std::int64_t block_parameters(const Transformer& model) {
  if (model.gated) return 3 * model.hidden * model.ffn;
  return 2 * model.hidden * model.ffn + model.ffn + model.hidden;
}

double tokens_of(const TrainingPlan& plan) {
  return static_cast<double>(plan.global_batch) * static_cast<double>(plan.sequence);
}

double layers_forward(const Transformer& model, const TrainingPlan& plan) {
  return static_cast<double>(model.layers) *
         (linear_flops(model) + attention_flops(model, plan.sequence));
}

std::optional<WorkloadProblem> expert_problem(const Transformer& model, const TrainingPlan& plan) {
  if (plan.expert < 1 || plan.expert > kMaxRanksPerDimension)
    return problem("expert", fmt::format("expert is {}", plan.expert),
                   fmt::format("give a number from 1 to {}", kMaxRanksPerDimension));
  if (model.experts == 0) {
    if (plan.expert_skew != 1)
      return problem("expert_skew", "the model has no experts",
                     "leave expert_skew out, or add experts to the model");
    if (plan.expert == 1) return std::nullopt;
    return problem("expert",
                   fmt::format("{} ranks cannot share experts: the model has none", plan.expert),
                   "leave expert out, or add experts to the model");
  }
  if (model.experts < 1 || model.experts > kMaxExperts)
    return problem("experts", fmt::format("experts is {}", model.experts),
                   fmt::format("give a number from 1 to {}", kMaxExperts));
  if (model.experts_per_token < 1 || model.experts_per_token > model.experts)
    return problem("experts_per_token",
                   fmt::format("a token goes through {} of {} experts", model.experts_per_token,
                               model.experts),
                   "give a number from 1 to experts");
  // Negated, so that NaN is refused.
  if (!(plan.expert_skew >= 1 && plan.expert_skew <= static_cast<double>(plan.expert)))
    return problem("expert_skew",
                   fmt::format("the fullest of {} expert ranks cannot get {:g} times the mean",
                               plan.expert, plan.expert_skew),
                   "give a number from 1 to expert");
  // Beyond this, counts of parameters exceed 64 bits.
  constexpr double kMaxParameters = 1e18;
  if (static_cast<double>(model.layers) * static_cast<double>(expert_parameters(model)) >
      kMaxParameters)
    return problem("experts", "the experts have more than 10^18 parameters",
                   "use fewer or smaller ones");
  if (auto wrong = indivisible("expert", {"expert", plan.expert}, {"experts", model.experts}))
    return wrong;
  return indivisible(
      "expert", {"expert", plan.expert},
      {plan.context > 1 ? "data x context" : "data-parallel ranks", plan.replicas()});
}

}  // namespace

std::optional<WorkloadProblem> workload_problem(const Transformer& model,
                                                const TrainingPlan& plan) {
  for (const Count& count :
       {Count{"layers", model.layers}, Count{"hidden", model.hidden}, Count{"heads", model.heads},
        Count{"kv_heads", model.kv_heads}, Count{"ffn", model.ffn},
        Count{"vocabulary", model.vocabulary}, Count{"sequence", plan.sequence},
        Count{"global_batch", plan.global_batch}, Count{"micro_batch", plan.micro_batch},
        Count{"tensor", plan.tensor}, Count{"context", plan.context},
        Count{"pipeline", plan.pipeline}, Count{"data", plan.data}, Count{"chunks", plan.chunks}})
    if (count.value < 1 || count.value > most_of(count.name))
      return problem(count.name, fmt::format("{} is {}", count.name, count.value),
                     fmt::format("give a number from 1 to {}", most_of(count.name)));
  // The order of the checks matters: those below divide by counts that are known to be positive,
  // and multiply some that are known to be small.
  if (plan.pieces() > model.layers + (plan.short_ends ? 2 : 0))
    return problem(
        "pipeline",
        fmt::format("the pipeline has {} stages{} for {} layers{}: a piece would have no layer",
                    plan.pipeline,
                    plan.chunks > 1 ? fmt::format(" of {} chunks", plan.chunks) : std::string(),
                    model.layers, plan.short_ends ? ", the embedding and the logits" : ""),
        plan.chunks > 1 ? "use fewer stages or chunks" : "use fewer stages");
  if (plan.global_batch / plan.micro_batch < plan.data)
    return problem(
        "global_batch",
        fmt::format("the global batch of {} is less than one micro-batch of {} on each of {} "
                    "data-parallel ranks",
                    plan.global_batch, plan.micro_batch, plan.data),
        "use a larger batch or fewer ranks");
  struct Share {
    std::string_view field;
    Count part, whole;
  };
  for (const Share& share :
       {Share{"heads", {"heads", model.heads}, {"hidden", model.hidden}},
        Share{"kv_heads", {"kv_heads", model.kv_heads}, {"heads", model.heads}},
        Share{"tensor", {"tensor", plan.tensor}, {"heads", model.heads}},
        Share{"context", {"context", plan.context}, {"sequence", plan.sequence}},
        Share{"global_batch",
              {"micro_batch x data", plan.micro_batch * plan.data},
              {"global_batch", plan.global_batch}}})
    if (auto wrong = indivisible(share.field, share.part, share.whole)) return wrong;
  return expert_problem(model, plan);
}

Status check_workload(const Transformer& model, const TrainingPlan& plan) {
  if (const auto wrong = workload_problem(model, plan)) return wrong->error;
  return Status::ok();
}

double layers_of_piece(const Transformer& model, const TrainingPlan& plan, std::int64_t piece) {
  const std::int64_t pieces = plan.pieces();
  const bool shorter = plan.short_ends && pieces > 1;
  const double each =
      static_cast<double>(model.layers + (shorter ? 2 : 0)) / static_cast<double>(pieces);
  return shorter && (piece == 0 || piece + 1 == pieces) ? each - 1 : each;
}

double layers_of_stage(const Transformer& model, const TrainingPlan& plan, std::int64_t stage) {
  const std::int64_t pieces = plan.pieces();
  const bool shorter = plan.short_ends && pieces > 1;
  const double each = static_cast<double>(model.layers + (shorter ? 2 : 0)) / plan.pipeline;
  if (!shorter) return each;
  const bool vee = plan.schedule == PipelineSchedule::zbv;
  return each - (stage == 0 ? 1 : 0) - (stage == (vee ? 0 : plan.pipeline - 1) ? 1 : 0);
}

std::int64_t layer_parameters(const Transformer& model) {
  const std::int64_t h = model.hidden;
  const std::int64_t kv = h / model.heads * model.kv_heads;
  const std::int64_t attention = 2 * h * h + 2 * h * kv;
  const std::int64_t router = h * model.experts;
  // Gated: two norms. Otherwise theirs have biases, too, and so have queries, keys and values, and
  // the output.
  const std::int64_t rest = model.gated ? 2 * h : h + 2 * kv + h + 4 * h;
  const std::int64_t blocks =
      model.experts > 0 ? router + expert_parameters(model) : block_parameters(model);
  return attention + rest + blocks + model.side_parameters;
}

std::int64_t expert_parameters(const Transformer& model) {
  return model.experts * block_parameters(model);
}

std::int64_t embedding_parameters(const Transformer& model) {
  return model.vocabulary * model.hidden * (model.tied_embeddings ? 1 : 2);
}

double table_parameters(const Transformer& model, bool embedding, bool logits) {
  if (embedding && logits) return static_cast<double>(embedding_parameters(model));
  if (!embedding && !logits) return 0;
  return static_cast<double>(model.vocabulary) * static_cast<double>(model.hidden);
}

std::int64_t parameters(const Transformer& model) {
  return model.layers * layer_parameters(model) + embedding_parameters(model);
}

std::int64_t active_parameters(const Transformer& model) {
  const std::int64_t unused = model.experts > 0 ? model.experts - model.experts_per_token : 0;
  return parameters(model) -
         model.layers * (unused * block_parameters(model) + model.side_parameters);
}

RankParameters parameters_of(const Transformer& model, const TrainingPlan& plan, double layers,
                             double tables) {
  const auto experts = static_cast<double>(expert_parameters(model));
  const double dense = static_cast<double>(layer_parameters(model)) - experts;
  return {(layers * dense + tables) / plan.tensor, layers * experts / plan.expert / plan.tensor};
}

std::vector<RankParameters> parameters_of_kinds(const Transformer& model,
                                                const TrainingPlan& plan) {
  // ZB-V puts the first and the last piece on the same stage.
  const bool both = plan.pipeline == 1 || plan.schedule == PipelineSchedule::zbv;
  std::vector<RankParameters> out = {parameters_of(model, plan, layers_of_stage(model, plan, 0),
                                                   table_parameters(model, true, both))};
  // A stage between them may have more: a layer for a table.
  if (plan.short_ends && plan.pipeline > 2)
    out.push_back(parameters_of(model, plan, layers_of_stage(model, plan, 1), 0));
  return out;
}

RankParameters parameters_of_rank(const Transformer& model, const TrainingPlan& plan) {
  const std::vector<RankParameters> kinds = parameters_of_kinds(model, plan);
  return *std::max_element(
      kinds.begin(), kinds.end(),
      [](const RankParameters& a, const RankParameters& b) { return a.total() < b.total(); });
}

double model_flops(const Transformer& model, const TrainingPlan& plan) {
  // The product with the output table; 3: forward, and two products backward.
  const double logits =
      2.0 * static_cast<double>(model.hidden) * static_cast<double>(model.vocabulary);
  return 3 * tokens_of(plan) * (layers_forward(model, plan) + logits);
}

double hardware_flops(const Transformer& model, const TrainingPlan& plan) {
  double again = 0;
  if (plan.recompute == Recompute::full) again = layers_forward(model, plan);
  // As LayerTimes::again.
  if (plan.recompute == Recompute::selective)
    again = static_cast<double>(model.layers) * (model.gated ? every_second_flops(model)
                                                 : model.fused_attention
                                                     ? 0
                                                     : attention_flops(model, plan.sequence));
  return model_flops(model, plan) + tokens_of(plan) * again;
}

namespace {

enum class Family { llama, mixtral, gpt, flux };

struct Shape {
  std::string_view name;
  Family family;
  std::int64_t layers, hidden, heads, ffn;
};

constexpr std::array<Shape, 12> kShapes = {{
    {"llama3-8b", Family::llama, 32, 4096, 32, 14336},
    {"llama3-70b", Family::llama, 80, 8192, 64, 28672},
    {"llama3-405b", Family::llama, 126, 16384, 128, 53248},
    {"mixtral-8x7b", Family::mixtral, 32, 4096, 32, 14336},
    {"mixtral-8x22b", Family::mixtral, 56, 6144, 48, 16384},
    {"gpt-1.7b", Family::gpt, 24, 2304, 24, std::int64_t{4} * 2304},
    {"gpt-7.5b", Family::gpt, 36, 4096, 32, std::int64_t{4} * 4096},
    {"gpt-18.4b", Family::gpt, 40, 6144, 48, std::int64_t{4} * 6144},
    {"gpt-39.1b", Family::gpt, 48, 8192, 64, std::int64_t{4} * 8192},
    {"gpt-76.1b", Family::gpt, 60, 10240, 80, std::int64_t{4} * 10240},
    {"gpt3-175b", Family::gpt, 96, 12288, 96, std::int64_t{4} * 12288},
    {"flux1-12b", Family::flux, 57, 3072, 24, std::int64_t{4} * 3072},
}};

Transformer model_of(const Shape& shape) {
  Transformer out;
  out.layers = shape.layers;
  out.hidden = shape.hidden;
  out.heads = out.kv_heads = shape.heads;
  out.ffn = shape.ffn;
  out.vocabulary = 51200;
  if (shape.family == Family::gpt) return out;
  if (shape.family == Family::flux) {
    // FLUX.1 (black-forest-labs/flux): 19 layers have weights for images and for texts, 12 h^2 each
    // and 6 h^2 each for the condition; 38 have one set, and 3 h^2. A token is 2 x 2 latents of 16
    // channels, which one product takes in and another gives out.
    out.two_stream_layers = 19;
    out.side_parameters = (19 * (12 + 2 * 6) + 38 * 3) * shape.hidden * shape.hidden / shape.layers;
    out.vocabulary = 64;
    out.tied_embeddings = false;
    out.fused_attention = out.diffusion = true;
    return out;
  }
  // The rest is Llama 3's, and nearly all of it Mixtral's.
  out.kv_heads = 8;
  out.vocabulary = 128256;
  out.gated = out.fused_attention = out.causal = true;
  out.tied_embeddings = false;
  if (shape.family == Family::llama) return out;
  out.vocabulary = shape.layers == 32 ? 32000 : 32768;
  out.experts = 8;
  out.experts_per_token = 2;
  return out;
}

}  // namespace

std::optional<Transformer> published_model(std::string_view name) {
  for (const Shape& shape : kShapes)
    if (shape.name == name) return model_of(shape);
  return std::nullopt;
}

std::vector<std::string> published_model_names() {
  std::vector<std::string> out;
  out.reserve(kShapes.size());
  for (const Shape& shape : kShapes) out.emplace_back(shape.name);
  return out;
}

}  // namespace lockstep::sim
