#include "sim/transformer/memory.h"

#include <algorithm>
#include <vector>

namespace lockstep::sim {
namespace {

// Tokens that a rank's feed-forward blocks take in, for each token of its own: as many as each goes
// through, on the fullest expert rank.
double tokens_in_blocks(const Transformer& model, const TrainingPlan& plan) {
  return static_cast<double>(model.blocks_per_token()) *
         (model.experts > 0 ? plan.expert_skew : 1.0);
}

// Bytes that a gated layer without dropouts keeps, per token and element of the width. On every
// rank, unless split along the sequence: the inputs of the two norms and of the linear layers after
// them, 4 tensors of 2 bytes. Split over the tensor ranks: queries, keys, values, the attention's
// output, and the two gates and their product.
double gated_bytes_per_element(const Transformer& model, const TrainingPlan& plan) {
  const double kv = static_cast<double>(model.kv_heads) / static_cast<double>(model.heads);
  const double blocks = tokens_in_blocks(model, plan);
  const double wide = blocks * static_cast<double>(model.ffn) / static_cast<double>(model.hidden);
  double whole = 4 * 2;
  double cut = 2 * (1 + 2 * kv) + 2 + 3 * 2 * wide;
  if (plan.recompute == Recompute::selective) {
    // torchtitan's policy: keep the layer's input, the attention's output, and of the products wq,
    // wk, wv, wo, w1, w3, w2 the first and every second one after it: queries, values, the gate and
    // the layer's own.
    whole = 2 + 2;
    cut = 2 + 2 * (1 + kv) + 2 * wide;
  }
  // The experts' inputs, as they came from other ranks.
  if (model.experts > 0) whole += 2 * blocks;
  return (plan.sequence_parallel ? whole / plan.tensor : whole) + cut / plan.tensor;
}

// arXiv 2205.05198, table 2: 34 bytes, of which 10 are the same on all tensor ranks, and 5 a s/h of
// scores and dropout masks.
double dense_bytes_per_element(const Transformer& model, const TrainingPlan& plan) {
  const double scores = plan.recompute == Recompute::selective || model.fused_attention
                            ? 0
                            : 5.0 * static_cast<double>(model.heads) *
                                  static_cast<double>(plan.sequence) /
                                  static_cast<double>(model.hidden) / plan.tensor;
  // Of the 24, 16 are before and after the activation function, in a block of four times the width.
  const double wide = tokens_in_blocks(model, plan) * static_cast<double>(model.ffn) /
                      (4 * static_cast<double>(model.hidden));
  const double cut = model.experts > 0 ? 8 + 16 * wide : 24;
  const double whole = model.experts > 0 ? 10 + 2 * tokens_in_blocks(model, plan) : 10;
  return whole / (plan.sequence_parallel ? plan.tensor : 1) + cut / plan.tensor + scores;
}

double width_bytes(const Transformer& model, const TrainingPlan& plan) {
  return static_cast<double>(plan.tokens()) * static_cast<double>(model.hidden);
}

// All that a layer makes while it runs, however much of it is kept.
double layer_working_bytes(const Transformer& model, TrainingPlan plan) {
  plan.recompute = Recompute::none;
  return layer_activation_bytes(model, plan);
}

}  // namespace

double layer_activation_bytes(const Transformer& model, const TrainingPlan& plan) {
  const double elements = width_bytes(model, plan);
  if (plan.recompute == Recompute::full)
    return 2 * elements / (plan.sequence_parallel ? plan.tensor : 1);
  return elements * (model.gated ? gated_bytes_per_element(model, plan)
                                 : dense_bytes_per_element(model, plan));
}

double logit_bytes(const Transformer& model, const TrainingPlan& plan) {
  // 16-bit logits, float32 logits, their log-softmax and its gradient.
  double each = 2 + 4 + 4 + 4;
  double inputs = 0;
  if (plan.plain_kernels && plan.tensor > 1) {
    // PyTorch's loss over logits that are split (torch/distributed/tensor/parallel/loss.py) holds
    // one more in float32, backward the sum of the gradient's two terms. The product before it
    // keeps its gathered input.
    each += 4;
    inputs = 2 * width_bytes(model, plan);
  }
  return inputs + each * static_cast<double>(plan.tokens()) *
                      static_cast<double>(model.vocabulary) / plan.tensor;
}

StateBytes state_bytes(const Transformer& model, const TrainingPlan& plan) {
  return state_bytes(parameters_of_rank(model, plan), plan);
}

StateBytes state_bytes(const RankParameters& count, const TrainingPlan& plan) {
  // What is left of the parameters where those of this level of sharding are divided over the ranks
  // that hold the same ones.
  const auto left = [&](Sharding from) {
    return plan.sharding >= from
               ? count.dense / plan.replicas() + count.experts / plan.expert_replicas()
               : count.total();
  };
  if (plan.sharding == Sharding::zero3) {
    const double part = left(Sharding::zero3);
    return {4 * part, 4 * part, 8 * part};
  }
  return {2 * count.total(), plan.gradient_bytes() * left(Sharding::zero2),
          12 * left(Sharding::zero1)};
}

namespace {

// The stage that has the last piece of the model.
std::size_t last_stage(const TrainingPlan& plan) {
  return plan.schedule == PipelineSchedule::zbv ? 0 : static_cast<std::size_t>(plan.pipeline) - 1;
}

}  // namespace

double message_buffers(const Transformer& model, const TrainingPlan& plan, std::size_t stage,
                       std::int64_t in_flight) {
  if (plan.sharding != Sharding::zero3 || plan.pipeline == 1) return 0;
  const double message = 2 * width_bytes(model, plan) / (plan.sequence_parallel ? plan.tensor : 1);
  const auto micro_batches = static_cast<double>(plan.micro_batches());
  const auto flying = static_cast<double>(in_flight);
  const double chunks = plan.chunks;
  const bool last = stage == last_stage(plan);
  // Inputs in flight are among the activations.
  const double inputs = std::max(0.0, micro_batches * (chunks - (stage == 0 ? 1 : 0)) - flying);
  const double sent = last ? chunks - 1 : chunks;  // pieces whose results are messages
  const double logits = last ? 2 * static_cast<double>(plan.tokens()) *
                                   static_cast<double>(model.vocabulary) / plan.tensor
                             : 0;
  // Those of the micro-batch at work are among the logits that are computed.
  return message * (inputs + micro_batches * sent + flying * sent / chunks) +
         logits * (micro_batches - 1);
}

StepMemory memory_use(const Transformer& model, const TrainingPlan& plan,
                      const std::vector<std::int64_t>& in_flight) {
  StepMemory use;
  use.state = state_bytes(model, plan);
  if (plan.sharding == Sharding::zero3) {
    // A pipeline stage keeps its gathered 16-bit weights over all micro-batches and sums gradients
    // in float32: 2 + 4 bytes. Otherwise two layers are gathered, the running one and the
    // prefetched one, and the tables of the embedding and the logits: they belong to the root,
    // which FSDP does not shard again after the forward (torch/distributed/fsdp/_fully_shard).
    const auto tables = static_cast<double>(embedding_parameters(model));
    use.unsharded = plan.pipeline > 1 ? 6 * parameters_per_rank(model, plan)
                                      : 2 * parameters_of(model, plan, 2, tables).total();
  }
  // The stage with the last piece of the model holds the logits. In most schedules it has fewer
  // micro-batches in flight, so it is not always the fullest.
  const std::size_t head = last_stage(plan);
  const double of_layer = layer_activation_bytes(model, plan);
  const double working = layer_working_bytes(model, plan);
  double most = 0;
  for (std::size_t stage = 0; stage < in_flight.size(); ++stage) {
    const double layers_per_chunk =
        layers_of_stage(model, plan, static_cast<std::int64_t>(stage)) / plan.chunks;
    const double kept = static_cast<double>(in_flight[stage]) * layers_per_chunk * of_layer;
    const double messages = message_buffers(model, plan, stage, in_flight[stage]);
    const double logits = stage == head ? logit_bytes(model, plan) : 0;
    // A layer and the logits are never computed at the same time.
    const double now = std::max(working, logits);
    // On a tie, the first stage.
    if (kept + messages + now <= most) continue;
    most = kept + messages + now;
    use.activations = kept;
    use.messages = messages;
    use.working = now;
    use.of_logits = logits > working;
    use.stage = static_cast<std::int32_t>(stage);
  }
  return use;
}

}  // namespace lockstep::sim
