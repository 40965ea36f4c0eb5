// The bytes that training keeps on a GPU, by formula, with 16-bit activations.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/pipeline/schedule.h"
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
// grouped queries make keys and values smaller. A mixture's feed-forward blocks keep those of all
// tokens that the fullest expert rank gets, and these tokens: see memory.cc.
double layer_activation_bytes(const Transformer& model, const TrainingPlan& plan);

// What a layer holds while it is computed, however much of it is kept: what it keeps without
// recomputation, what sequence parallelism gathers, and the layer's gradients under zero3.
double layer_working_bytes(const Transformer& model, TrainingPlan plan);

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

// A piece of the model on the stage that holds it.
struct HeldPiece {
  double layers = 0;
  double parameters = 0, trained = 0;      // of a rank, and those of them that have gradients
  bool is_first = false, is_last = false;  // of the model
};

// What a stage holds, beyond its states, at the end of a task.
struct StageMemory {
  // What zero3 has gathered at the same time, and the buffers for that: memory.cc. In a pipeline, a
  // piece is a root with buffers of its own (torch/distributed/fsdp, FSDPCommContext). It keeps its
  // 16-bit weights from its first forward to its last backward, so that they are not gathered for
  // each micro-batch, and from its first backward sums gradients in float32; after its last one
  // they are scattered and freed (torchtitan, apply_fsdp; torch/distributed/pipelining/stage.py,
  // run_post_backward). So of interleaved pieces not all need gradients at the same time.
  double unsharded = 0;
  double activations = 0;  // of all micro-batches in flight
  // In a zero3 pipeline, beyond the activations, as in PyTorch 2.6's pipelining: a buffer for the
  // gradient and, except in the first piece of the model, for the input of every micro-batch of the
  // step, and the input's gradient, once computed, until the next step (freed when it is sent only
  // since github.com/pytorch/pytorch/pull/164329); the results of those in flight; and the last
  // piece's 16-bit logits, of all that it has computed. Other pipelines free what they sent.
  double messages = 0;
  double total() const { return unsharded + activations + messages; }
};
// What `stage` holds at the end of the task, of `order`, at which it holds most. `pieces`: by
// chunk. O(tasks x chunks).
StageMemory fullest_moment(const Transformer& model, const TrainingPlan& plan,
                           const PipelineProgram& order, std::int32_t stage,
                           const std::vector<HeldPiece>& pieces);

struct StepMemory {
  StateBytes state;
  StageMemory held;
  double working = 0;      // of the layer that is being computed, or of the logits
  bool of_logits = false;  // `working` is of the logits
  std::int32_t stage = 0;  // the stage that this describes
  double total() const { return state.total() + held.total() + working; }
};

// The memory use of the fullest stage.
StepMemory memory_use(const Transformer& model, const TrainingPlan& plan,
                      const PipelineProgram& order);

}  // namespace lockstep::sim
