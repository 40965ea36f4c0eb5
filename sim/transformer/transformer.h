// A transformer language model and the layout of its training, as counts.
//
// Sizes follow from the hyper-parameters by the formula at each function, with its source; nothing
// is measured here. hidden, ffn and vocabulary are widths in elements, sequence is in tokens,
// micro_batch and global_batch are in sequences.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "sim/pipeline/schedule.h"

namespace lockstep::sim {

struct Transformer {
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  // fewer than `heads`: grouped queries
  std::int64_t ffn = 0;       // width inside the feed-forward block, of a mixture of each expert
  // Feed-forward blocks of a layer, and how many of them a token goes through; 0: there is one.
  std::int64_t experts = 0;
  std::int64_t experts_per_token = 0;
  std::int64_t vocabulary = 0;
  bool gated = false;            // SwiGLU: a third matrix in the feed-forward block, no biases
  bool tied_embeddings = true;   // one table for input and output
  bool fused_attention = false;  // FlashAttention: no [sequence, sequence] scores in memory
  bool causal = false;           // the attention kernel skips what the mask hides
  // A diffusion transformer (adaLN-Zero, arXiv 2212.09748; MM-DiT, arXiv 2403.03206): a condition
  // scales, shifts and gates what a layer does, and queries and keys are normalised.
  bool diffusion = false;
  // Layers with two streams of half of the tokens each, images and texts, that share the attention
  // alone (MM-DiT's blocks; FLUX.1's "double" ones). The others are of one stream.
  std::int64_t two_stream_layers = 0;
  // Parameters of a layer, on average, that are not multiplied with a token: those of the
  // condition, and of one of two streams, since each token passes through the other one's.
  std::int64_t side_parameters = 0;

  bool operator==(const Transformer&) const = default;

  std::int64_t head_width() const { return hidden / heads; }
  // Feed-forward blocks that a token goes through.
  std::int64_t blocks_per_token() const { return experts > 0 ? experts_per_token : 1; }
};

// What the backward pass computes again instead of keeping it.
enum class Recompute : std::uint8_t {
  none,
  selective,  // arXiv 2205.05198, section 5: only the attention; gated layers: every second product
  full,       // each layer, from its input
};
inline constexpr std::array<std::string_view, 3> kRecomputeNames = {"none", "selective", "full"};

// What is distributed over the data-parallel ranks: ZeRO, arXiv 1910.02054, section 5.
enum class Sharding : std::uint8_t {
  none,
  zero1,  // optimizer state
  zero2,  // and gradients
  zero3,  // and parameters: FSDP
};

struct TrainingPlan {
  std::int64_t sequence = 0;
  std::int64_t global_batch = 0;
  std::int64_t micro_batch = 1;
  std::int32_t tensor = 1;    // ranks over which a layer is split
  std::int32_t context = 1;   // … a sequence is split
  std::int32_t pipeline = 1;  // … the layers are distributed
  std::int32_t data = 1;      // … the batch is distributed
  std::int32_t chunks = 1;    // pieces of the model per pipeline stage
  // The first and the last piece have a layer less: the embedding and the logits count as one each
  // (Megatron-LM's account_for_embedding_in_pipeline_split and …_loss_…; arXiv 2407.21783, section
  // 3.3.2). Nothing changes for a model in one piece.
  bool short_ends = false;
  std::int32_t expert = 1;  // … of context and data ranks, over which the experts are distributed
  double expert_skew = 1;   // tokens that the fullest of them gets, over the mean
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  Recompute recompute = Recompute::none;
  Sharding sharding = Sharding::none;
  bool sequence_parallel =
      false;  // arXiv 2205.05198: norms and dropouts split over the tensor ranks
  bool overlapped_tensor = false;  // its collectives overlap the matrix products (async TP)
  // These overlap computing, and only slow it down (CostParameters::overlap_slowdown):
  bool overlapped_gradients = false;  // the gradients' exchange
  bool overlapped_context = false;    // context-parallel collectives, as in ring attention
  bool overlapped_pipeline = false;   // sends between pipeline stages
  bool fp8 = false;                   // linear layers multiply in 8 bits
  bool compiled = false;              // element-wise operations are fused by a compiler
  bool plain_kernels = false;  // PyTorch's own operators, as in torchtitan, not fused ones by hand
  bool short_gradients = false;  // kept and summed in 16 bits instead of float32

  // Of zero2: each micro-batch's gradients are scattered, as in DeepSpeed, not their sum.
  bool scatters_each_micro_batch = false;

  // Bytes of a gradient, in memory (zero3 keeps float32 in any case) and on the wire.
  double gradient_bytes() const { return short_gradients ? 2 : 4; }

  std::int64_t ranks() const { return std::int64_t{tensor} * context * pipeline * data; }
  // Ranks that hold the same dense parameters, and the same experts.
  std::int32_t replicas() const { return data * context; }
  std::int32_t expert_replicas() const { return data * context / expert; }
  // Pieces of the model: chunks of all stages.
  std::int64_t pieces() const { return std::int64_t{pipeline} * chunks; }
  // Micro-batches of a rank in a step, and the tokens of a micro-batch that one rank sees.
  std::int64_t micro_batches() const { return global_batch / (micro_batch * data); }
  std::int64_t tokens() const { return micro_batch * sequence / context; }
};

// What is wrong with a workload, and which field of the two structs to change.
struct WorkloadProblem {
  std::string_view field;  // "heads", "tensor", …
  Error error;             // without a location
};

// The first problem, with its fix: a count below 1 or too large, heads that do not divide the
// width, ranks that do not divide what they share (heads, batch, sequence), more stages than
// layers.
std::optional<WorkloadProblem> workload_problem(const Transformer& model, const TrainingPlan& plan);
// The same as a Status.
Status check_workload(const Transformer& model, const TrainingPlan& plan);

// Layers of a piece of the model, and of a pipeline stage; not whole where they do not divide.
double layers_of_piece(const Transformer& model, const TrainingPlan& plan, std::int64_t piece);
double layers_of_stage(const Transformer& model, const TrainingPlan& plan, std::int64_t stage);

// Weights, biases and norms of one layer, of the embeddings, of the whole model. arXiv 2104.04473,
// eq. 2: 12 l h^2 (1 + 13/(12 h) + (V + s)/(12 l h)); here without position embeddings, and exact
// for gated layers and grouped queries, and with the side parameters.
std::int64_t layer_parameters(const Transformer& model);
std::int64_t embedding_parameters(const Transformer& model);
std::int64_t parameters(const Transformer& model);
// … of those that a token goes through.
std::int64_t active_parameters(const Transformer& model);
// … of them all experts' of a layer; 0 of a dense model.
std::int64_t expert_parameters(const Transformer& model);
// … of the tables on a stage that has the embedding, the logits, or both of them, before they are
// divided over tensor ranks. Each end of a pipeline holds a table, tied or not.
double table_parameters(const Transformer& model, bool embedding, bool logits);
// Parameters of one rank before sharding over data-parallel ranks. Experts' are shared by fewer of
// them: TrainingPlan::expert_replicas().
struct RankParameters {
  double dense = 0, experts = 0;
  double total() const { return dense + experts; }
};
// `layers` layers and `tables` parameters of embeddings, on the ranks that hold them.
RankParameters parameters_of(const Transformer& model, const TrainingPlan& plan, double layers,
                             double tables);
// … of the first pipeline stage and, where one between the ends may have more, of such a one. Which
// of them holds, sends or updates more depends on what experts and dense parameters are divided by,
// so whoever takes the most asks for all.
std::vector<RankParameters> parameters_of_kinds(const Transformer& model, const TrainingPlan& plan);
// … of the fullest pipeline stage.
RankParameters parameters_of_rank(const Transformer& model, const TrainingPlan& plan);

// Floating-point operations of a step that the model needs, without recomputation: 3 times the
// matrix products of the forward pass. With full recompute, 4/3 of it is arXiv 2104.04473, eq. 3:
// 96 B s l h^2 (1 + s/(6h) + V/(16 l h)).
double model_flops(const Transformer& model, const TrainingPlan& plan);
// With recomputation: the "hardware FLOPs" of arXiv 2204.02311, appendix B.
double hardware_flops(const Transformer& model, const TrainingPlan& plan);

// Transformers whose shapes are published, by name: "llama3-70b", "gpt3-175b", …

// Empty: no such name. Llama 3.1 (arXiv 2407.21783, table 3) has 8 key-value heads, a vocabulary of
// 128,256 and FlashAttention. Mixtral (arXiv 2401.04088, table 1, and its 8x22B's configuration)
// has 8 experts, of which a token goes through 2. GPT-3 (arXiv 2005.14165, table 2.1) and the GPTs
// of Megatron-LM (arXiv 2104.04473, table 1) have a vocabulary of 51,200 and the scores in memory,
// as in the published runs.
std::optional<Transformer> published_model(std::string_view name);

// All names, by family and size.
std::vector<std::string> published_model_names();

}  // namespace lockstep::sim
