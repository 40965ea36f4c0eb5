// The bytes that training keeps on a GPU, by formula, with 16-bit activations.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/transformer/transformer.h"

namespace lockstep::sim {

// What one layer keeps of one micro-batch for its backward pass, in bytes on one rank. Without
// gating, arXiv 2205.05198 (Korthikanti et al.), table 2:
//
//   no recompute      s b h (10 + 24/t + 5 a s/(h t));
//                     with sequence parallelism s b h/t (34 + 5 a s/h)
//   selective         s b h (10 + 24/t);  with sequence parallelism 34 s b h/t
//   full              2 s b h
//
// Gated layers have no dropouts and keep the two inputs of the product and the product itself;
// grouped queries make keys and values smaller. Of a mixture's feed-forward blocks, those of all
// tokens that the fullest expert rank gets, and these tokens: see memory.cc.
double layer_activation_bytes(const Transformer& model, const TrainingPlan& plan);

// Logits of one micro-batch on one rank of the last stage: 16-bit, float32, log-softmax and its
// gradient. Under PyTorch, split over tensor ranks, more: see memory.cc.
double logit_bytes(const Transformer& model, const TrainingPlan& plan);

// Parameters, gradients and optimizer state of a rank with Adam in mixed precision: with 16-bit
// gradients 16 bytes per parameter, (2 + 2 + K) with K = 12 (arXiv 1910.02054, section 3.1 and
// figure 1), with float32 gradients, as Megatron sums them, 18; divided over the data-parallel
// ranks by the sharding. zero3 keeps float32 parameters and gradients (FSDP), which is 16 bytes,
// too.
struct StateBytes {
  double parameters = 0, gradients = 0, optimizer = 0;
  double total() const { return parameters + gradients + optimizer; }
};
StateBytes state_bytes(const Transformer& model, const TrainingPlan& plan);
// The same of these parameters of a rank.
StateBytes state_bytes(const RankParameters& count, const TrainingPlan& plan);

// What a stage of a zero3 pipeline holds of messages beyond the activations, as PyTorch's
// pipelining does (torch/distributed/pipelining/stage.py): a buffer for the gradient and, but for
// the first piece of the model, for the input of every micro-batch of the step; the results of
// those in flight; and the last piece's 16-bit logits, of all of them. Other pipelines free what
// they sent.
double message_buffers(const Transformer& model, const TrainingPlan& plan, std::size_t stage,
                       std::int64_t in_flight);

struct StepMemory {
  StateBytes state;
  double unsharded = 0;    // what zero3 has gathered at the same time
  double activations = 0;  // of all micro-batches in flight
  double messages = 0;     // message_buffers()
  double working = 0;      // of the layer that is being computed, or of the logits
  bool of_logits = false;  // `working` is of the logits
  std::int32_t stage = 0;  // the stage that this describes
  double total() const { return state.total() + unsharded + activations + messages + working; }
};

// The memory use of the fullest stage. `in_flight` by stage as in PipelineRun: each chunk counts.
StepMemory memory_use(const Transformer& model, const TrainingPlan& plan,
                      const std::vector<std::int64_t>& in_flight);

}  // namespace lockstep::sim
