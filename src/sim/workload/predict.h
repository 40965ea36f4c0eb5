// Predicts a training step: kernels, launches, collectives and the pipeline together.
#pragma once

#include "sim/units.h"
#include "sim/workload/cost_parameters.h"
#include "sim/workload/memory.h"
#include "sim/workload/transformer.h"

namespace lockstep::sim {

// Seconds that a layer takes for one micro-batch on one rank. `kernels` without `communication` is
// what the GPU computes, `launches` what the host needs to issue it.
struct LayerTime {
  double kernels = 0, communication = 0, launches = 0;
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

struct StepPrediction {
  double seconds = 0;
  double pipeline_seconds = 0;  // forward and backward of all micro-batches
  double exchange_seconds = 0;  // gradients over the data-parallel ranks, not hidden
  double update_seconds = 0;    // optimizer and what a step costs once
  double bubble = 0;            // idle share of the pipeline
  MemoryUse memory;
  double memory_bytes = 0;  // all of it, with what the libraries reserve
  double tokens_per_second_and_rank(const TrainingPlan& plan) const {
    return static_cast<double>(plan.global_batch) * static_cast<double>(plan.sequence) / seconds /
           static_cast<double>(plan.ranks());
  }
};

// Errors: check_workload's, and those of the schedule.
Result<StepPrediction> predict_step(const Transformer& model, const TrainingPlan& plan,
                                    const CostParameters& cost);

}  // namespace lockstep::sim
