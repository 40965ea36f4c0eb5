#include "sim/transformer/memory.h"

#include <algorithm>
#include <utility>
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
  // 16 of the 24 are before and after the activation function, in a block of four times the width.
  const double wide = tokens_in_blocks(model, plan) * static_cast<double>(model.ffn) /
                      (4 * static_cast<double>(model.hidden));
  const double cut = model.experts > 0 ? 8 + 16 * wide : 24;
  const double whole = model.experts > 0 ? 10 + 2 * tokens_in_blocks(model, plan) : 10;
  return whole / (plan.sequence_parallel ? plan.tensor : 1) + cut / plan.tensor + scores;
}

double width_bytes(const Transformer& model, const TrainingPlan& plan) {
  return static_cast<double>(plan.tokens()) * static_cast<double>(model.hidden);
}

}  // namespace

double layer_activation_bytes(const Transformer& model, const TrainingPlan& plan) {
  const double elements = width_bytes(model, plan);
  if (plan.recompute == Recompute::full)
    return 2 * elements / (plan.sequence_parallel ? plan.tensor : 1);
  return elements * (model.gated ? gated_bytes_per_element(model, plan)
                                 : dense_bytes_per_element(model, plan));
}

double layer_working_bytes(const Transformer& model, TrainingPlan plan) {
  plan.recompute = Recompute::none;
  double bytes = layer_activation_bytes(model, plan);
  // What is split along the sequence is gathered for the products: backward, their input and the
  // gradient of their output; the gradient of the input is whole until it is scattered (arXiv
  // 2205.05198, section 4.2.2).
  if (plan.sequence_parallel && plan.tensor > 1) bytes += 3 * 2 * width_bytes(model, plan);
  // FSDP: gradients in 16 bits, and in float32 what is scattered of them. A pipeline adds them to
  // its sums.
  if (plan.sharding == Sharding::zero3)
    bytes += (plan.pipeline > 1 ? 2 : 2 + 4) * parameters_of(model, plan, 1, 0).total();
  return bytes;
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
  StateBytes most;
  for (const RankParameters& count : parameters_of_kinds(model, plan))
    if (const StateBytes bytes = state_bytes(count, plan); bytes.total() > most.total())
      most = bytes;
  return most;
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

// FSDP gathers into buffers of a stream of their own, whose memory serves no other, and copies what
// it gathered out of them (torch/distributed/fsdp/_fully_shard, "Overlapping all-gather copy-in and
// all-gather"). A buffer is freed only after the next one was filled: so there are two, of layers
// or, at first, of the root, which has the tables, and of a layer. A later layer fits into what the
// root's has freed only if that is as large.
double buffer_bytes(const Transformer& model, const TrainingPlan& plan, const HeldPiece& piece) {
  const double layer = parameters_of(model, plan, 1, 0).total();
  const double tables =
      parameters_of(model, plan, 0, table_parameters(model, piece.is_first, piece.is_last)).total();
  return 2 * std::min(piece.parameters, tables + (tables >= layer ? 1 : 2) * layer);
}

// Where parameters are not kept gathered: a layer, and the root, which stays after the forward.
double gathered_bytes(const Transformer& model, const TrainingPlan& plan, const HeldPiece& piece) {
  const double tables = table_parameters(model, piece.is_first, piece.is_last);
  return 2 * parameters_of(model, plan, 1, tables).total();
}

std::vector<HeldPiece> pieces_of(const Transformer& model, const TrainingPlan& plan,
                                 const PipelineProgram& order, std::int32_t stage) {
  std::vector<HeldPiece> out;
  for (std::int32_t chunk = 0; chunk < order.shape.chunks; ++chunk) {
    const std::int32_t index = order.piece(stage, chunk);
    HeldPiece piece{.layers = layers_of_piece(model, plan, index),
                    .is_first = index == 0,
                    .is_last = index + 1 == order.shape.pieces()};
    piece.parameters = piece.trained =
        parameters_of(model, plan, piece.layers,
                      table_parameters(model, piece.is_first, piece.is_last))
            .total();
    out.push_back(piece);
  }
  return out;
}

// How far a step has come with a piece.
struct Progress {
  std::int64_t forwards = 0, backwards = 0;  // micro-batches that have begun, and that have ended
  double in_flight() const { return static_cast<double>(forwards - backwards); }
};

// The unsharded bytes of a piece in a zero3 pipeline, as in StageMemory. `ends`: its task at hand
// is its last one, after which the gradients are scattered.
double unsharded_bytes(const HeldPiece& piece, const Progress& progress, std::int64_t micro_batches,
                       bool ends) {
  if (progress.forwards == 0 || (progress.backwards == micro_batches && !ends)) return 0;
  return 2 * piece.parameters + (progress.backwards > 0 ? 4 * piece.trained : 0);
}

double message_buffers(const Transformer& model, const TrainingPlan& plan, const HeldPiece& piece,
                       const Progress& progress) {
  const double message = 2 * width_bytes(model, plan) / (plan.sequence_parallel ? plan.tensor : 1);
  const auto micro_batches = static_cast<double>(plan.micro_batches());
  // Inputs in flight are among the activations. The gradient that went back stays with its input.
  const double inputs = piece.is_first ? 0
                                       : micro_batches - progress.in_flight() +
                                             static_cast<double>(progress.backwards);
  if (!piece.is_last) return message * (inputs + micro_batches + progress.in_flight());
  // The logits of the micro-batch at work are among those that are computed.
  const double logits =
      2 * static_cast<double>(plan.tokens()) * static_cast<double>(model.vocabulary) / plan.tensor;
  return message * inputs + logits * std::max(0.0, static_cast<double>(progress.forwards) - 1);
}

}  // namespace

StageMemory fullest_moment(const Transformer& model, const TrainingPlan& plan,
                           const PipelineProgram& order, std::int32_t stage,
                           const std::vector<HeldPiece>& pieces) {
  const bool fsdp = plan.sharding == Sharding::zero3;
  const bool keeps_gathered = fsdp && plan.pipeline > 1;
  const double of_layer = layer_activation_bytes(model, plan);
  const Work last_part = order.split ? Work::weight : Work::backward;
  // Each piece is a root with streams of its own.
  double gathering = 0;
  for (const HeldPiece& piece : pieces)
    if (fsdp)
      gathering += buffer_bytes(model, plan, piece) +
                   (keeps_gathered ? 0 : gathered_bytes(model, plan, piece));
  std::vector<Progress> progress(pieces.size());
  StageMemory most;
  for (const PipelineTask& task : order.tasks[static_cast<std::size_t>(stage)]) {
    Progress& at_work = progress[static_cast<std::size_t>(task.chunk)];
    if (task.work == Work::forward) ++at_work.forwards;
    if (task.work == last_part) ++at_work.backwards;
    StageMemory now;
    now.unsharded = gathering;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      now.activations += progress[i].in_flight() * pieces[i].layers * of_layer;
      if (!keeps_gathered) continue;
      const bool ends = std::cmp_equal(i, task.chunk) && task.work == last_part;
      now.unsharded += unsharded_bytes(pieces[i], progress[i], order.shape.micro_batches, ends);
      now.messages += message_buffers(model, plan, pieces[i], progress[i]);
    }
    if (now.total() > most.total()) most = now;
  }
  return most;
}

StepMemory memory_use(const Transformer& model, const TrainingPlan& plan,
                      const PipelineProgram& order) {
  StepMemory use;
  use.state = state_bytes(model, plan);
  const double working = layer_working_bytes(model, plan);
  double most = 0;
  for (std::int32_t stage = 0; stage < order.shape.stages; ++stage) {
    const StageMemory held =
        fullest_moment(model, plan, order, stage, pieces_of(model, plan, order, stage));
    // The stage with the last piece of the model holds the logits. In most schedules it has fewer
    // micro-batches in flight, so it is not always the fullest. A layer and the logits are never
    // computed at the same time.
    const bool head = stage == order.stage_of(order.shape.pieces() - 1);
    const double logits = head ? logit_bytes(model, plan) : 0;
    const double now = std::max(working, logits);
    // On a tie, the first stage.
    if (held.total() + now <= most) continue;
    most = held.total() + now;
    use.held = held;
    use.working = now;
    use.of_logits = logits > working;
    use.stage = stage;
  }
  return use;
}

}  // namespace lockstep::sim
