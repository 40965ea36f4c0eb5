#include "sim/transformer/memory.h"

#include <algorithm>
#include <vector>

namespace lockstep::sim {
namespace {

// Bytes that a gated layer without dropouts keeps, per token and element of the width. On every
// rank, unless split along the sequence: the inputs of the two norms and of the linear layers after
// them, 4 tensors of 2 bytes. Split over the tensor ranks: queries, keys, values, the attention's
// output, and the two gates and their product.
double gated_bytes_per_element(const Transformer& model, const TrainingPlan& plan) {
  const double kv = static_cast<double>(model.kv_heads) / static_cast<double>(model.heads);
  const double wide = static_cast<double>(model.ffn) / static_cast<double>(model.hidden);
  double whole = 4 * 2;
  double cut = 2 * (1 + 2 * kv) + 2 + 3 * 2 * wide;
  if (plan.recompute == Recompute::selective) {
    // torchtitan's policy: keep the layer's input, the attention's output, and the output of every
    // second matrix product.
    whole = 2 + 2;
    cut = 2 + (1 + 2 * kv) + 2 * wide;
  }
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
  return (plan.sequence_parallel ? 10.0 / plan.tensor : 10.0) + 24.0 / plan.tensor + scores;
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
  return static_cast<double>(plan.tokens()) * static_cast<double>(model.vocabulary) / plan.tensor *
         (2 + 4 + 4 + 4);
}

StateBytes state_bytes(const Transformer& model, const TrainingPlan& plan) {
  const double count = parameters_per_rank(model, plan);
  const double ranks = static_cast<double>(plan.data) * plan.context;
  // The number of ranks that a state is divided by, from this level of sharding on.
  const auto shared = [&](Sharding from) { return plan.sharding >= from ? ranks : 1.0; };
  if (plan.sharding == Sharding::zero3)
    return {4 * count / ranks, 4 * count / ranks, 8 * count / ranks};
  return {2 * count, plan.gradient_bytes() * count / shared(Sharding::zero2),
          12 * count / shared(Sharding::zero1)};
}

StepMemory memory_use(const Transformer& model, const TrainingPlan& plan,
                      const std::vector<std::int64_t>& in_flight) {
  StepMemory use;
  use.state = state_bytes(model, plan);
  const double layers_per_chunk = static_cast<double>(model.layers) / plan.pipeline / plan.chunks;
  if (plan.sharding == Sharding::zero3) {
    // A pipeline stage keeps its gathered 16-bit weights over all micro-batches and sums gradients
    // in float32: 2 + 4 bytes. Otherwise two layers are gathered: the running one and the
    // prefetched one.
    use.unsharded = plan.pipeline > 1
                        ? 6 * parameters_per_rank(model, plan)
                        : 2 * 2 * static_cast<double>(layer_parameters(model)) / plan.tensor;
  }
  // The stage with the last piece of the model holds the logits. In most schedules it has fewer
  // micro-batches in flight, so it is not always the fullest.
  const std::size_t head =
      plan.schedule == PipelineSchedule::zbv || in_flight.empty() ? 0 : in_flight.size() - 1;
  const double of_layer = layer_activation_bytes(model, plan);
  const double working = layer_working_bytes(model, plan);
  double most = 0;
  for (std::size_t stage = 0; stage < in_flight.size(); ++stage) {
    const double kept = static_cast<double>(in_flight[stage]) * layers_per_chunk * of_layer;
    const double logits = stage == head ? logit_bytes(model, plan) : 0;
    // A layer and the logits are never computed at the same time.
    const double now = std::max(working, logits);
    // On a tie, the first stage.
    if (kept + now <= most) continue;
    most = kept + now;
    use.activations = kept;
    use.working = now;
    use.of_logits = logits > working;
    use.stage = static_cast<std::int32_t>(stage);
  }
  return use;
}

}  // namespace lockstep::sim
