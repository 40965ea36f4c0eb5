// Predicts a training step: kernels, launches, collectives and the pipeline together.
#pragma once

#include "base/quantities.h"
#include "sim/transformer/calibration.h"
#include "sim/transformer/memory.h"
#include "sim/transformer/transformer.h"
#include "trace/signature.h"

namespace lockstep::sim {

// Seconds that a layer takes for one micro-batch on one rank. `kernels` is what the GPU computes,
// `tensor` and `context` what the ranks of these groups exchange, `launches` what the host needs to
// issue it.
struct LayerTime {
  double kernels = 0, tensor = 0, context = 0, launches = 0;
  double on_gpu() const { return kernels + tensor + context; }
};

struct LayerTimes {
  LayerTime forward, backward;  // backward without what is recomputed
};

// Forward and backward of one layer:
//   linear      QKV, projection, feed-forward; backward twice as many products
//   attention   scores and values; bytes of softmax and dropout where they are in memory, and the
//               fused softmax only where 4 divides micro-batch x heads of the rank
//               (Megatron-LM, fused_softmax.py, is_kernel_available)
//   element-wise, norms and dropouts by their bytes
//   tensor-parallel collectives: two all-reduces each way (arXiv 1909.08053, section 3), or as many
//               bytes as all-gathers and reduce-scatters with sequence parallelism
LayerTimes layer_times(const Transformer& model, const TrainingPlan& plan,
                       const CostParameters& cost);

// Where a step's time goes: seconds, as the mean over the GPUs, which together are the step.
struct StepParts {
  double layers = 0;     // kernels of the layers, forward and backward
  double recompute = 0;  // … of the forward that full recompute repeats
  double logits = 0;     // the embedding's lookup, the logits and the loss
  double host = 0;       // the GPU waits for kernels that the host has not issued
  double tensor = 0;     // collectives of tensor parallelism
  double context = 0;    // … of context parallelism
  double data = 0;       // parameters and gradients over the data-parallel ranks, as far as nothing
                         // hides them
  double handover = 0;   // activations and their gradients between pipeline stages
  double bubble = 0;     // a stage waits for another one
  double optimizer = 0;  // clipping, update and copy of the parameters
  double overhead = 0;   // what a step costs once
  double total() const {
    return layers + recompute + logits + host + tensor + context + data + handover + bubble +
           optimizer + overhead;
  }
};

struct StepPrediction {
  double seconds = 0;
  double pipeline_seconds = 0;  // forward and backward of all micro-batches
  double exchange_seconds = 0;  // gradients over the data-parallel ranks, not hidden
  double update_seconds = 0;    // optimizer and what a step costs once
  double bubble = 0;            // idle share of the pipeline, of PipelineRun::period
  StepParts parts;              // of `seconds`, but for the rounding to the clock's picoseconds
  StepMemory memory;
  double memory_bytes = 0;  // all of it, with what the libraries reserve
  double tokens_per_second_and_rank(const TrainingPlan& plan) const {
    return static_cast<double>(plan.global_batch) * static_cast<double>(plan.sequence) / seconds /
           static_cast<double>(plan.ranks());
  }
};

// O(micro-batches x stages x chunks). Errors: check_workload's, those of the schedule, and a
// micro-batch that takes a stage more than kLongestPiece.
inline constexpr double kLongestPiece = 1e5;  // seconds
Result<StepPrediction> predict_step(const Transformer& model, const TrainingPlan& plan,
                                    const CostParameters& cost);

// Times of single kernels and collectives on one GPU, in seconds.

// [rows, depth] x [depth, columns], `batch` of them in one launch.
struct Gemm {
  double rows = 0, columns = 0, depth = 0, batch = 1;
  double flops() const { return 2 * rows * columns * depth * batch; }
};

// Tiles of 128 x 128 go to the processors in waves, of which the last one may be mostly empty
// (NVIDIA, "Matrix multiplication background user's guide", wave quantization); a short inner
// dimension leaves the pipeline of loads unfilled. At least the time to read and write the 16-bit
// operands. `speed` multiplies the peak: 8-bit products.
double gemm_seconds(const CostParameters& cost, const Gemm& gemm, double speed = 1);

// Element-wise kernels over so many bytes.
double traffic_seconds(const CostParameters& cost, double bytes);

// Who takes part in a collective.
struct Group {
  int ranks = 1;
  int per_node = 1;  // of them on one node; equal to `ranks` where no network is between them
};

// Ranks that are `stride` apart, as many as `ranks`.
Group group_of(const CostParameters& cost, int ranks, int stride);

// A ring over `bytes` (as nccl-tests counts them): bus_factor(op) x bytes over the slowest link;
// the members of a node bring one network card each.
double collective_seconds(const CostParameters& cost, trace::Op op, double bytes, Group group);

}  // namespace lockstep::sim
