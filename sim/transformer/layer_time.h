// The time of a transformer's layer on one rank, kernel by kernel.
#pragma once

#include "sim/transformer/calibration.h"
#include "sim/transformer/transformer.h"

namespace lockstep::sim {

// Seconds of a layer for one micro-batch on one rank. `kernels`: the GPU computes; `tensor`,
// `context` and `expert`: collectives in these groups; `launches`: the host issues the work.
// `attention`: the part of the kernels that grows with the square of a sequence; `weights`: that of
// the products for the weights' gradients.
struct LayerTime {
  double kernels = 0, tensor = 0, context = 0, expert = 0, launches = 0;
  double attention = 0, weights = 0;
  double on_gpu() const { return kernels + tensor + context + expert; }
};

struct LayerTimes {
  LayerTime forward, backward;  // backward: without recomputation
  LayerTime recompute;          // of the forward, during the backward pass
};

// Forward and backward of one layer:
//
//   linear      QKV, projection, feed-forward; backward twice as many products
//   attention   scores and values; the bytes of softmax and dropout where they are in memory. The
//               fused softmax is used only if 4 divides micro-batch x heads of the rank
//               (Megatron-LM, fused_softmax.py, is_kernel_available)
//   element-wise operations, norms and dropouts by their bytes; besides, the modulation of a
//               diffusion transformer, by bytes that were fitted to a step of FLUX.1
//   tensor-parallel collectives: two all-reduces each way (arXiv 1909.08053, section 3), or as many
//               bytes as all-gathers and reduce-scatters with sequence parallelism
//   PyTorch's own operators (TrainingPlan::plain_kernels): more bytes where no compiler fuses them,
//               and another context parallelism
//   experts     of a mixture: their products, for the tokens of the fullest rank; an all-to-all of
//               the tokens before and after them, each way; if tensor ranks split them,
//               an all-gather of all their tokens instead of the layer's second all-reduce
//               (Megatron Core's dispatcher, arXiv 2504.14960)
//   recompute   full: the forward pass. Selective: the attention's forward (arXiv 2205.05198,
//               section 5); in gated layers torchtitan's policy, whose memory is counted: every
//               second product (keys, the attention's output, one of the two up-projections), the
//               element-wise operations, and with sequence parallelism the all-gathers
LayerTimes layer_times(const Transformer& model, const TrainingPlan& plan,
                       const CostParameters& cost);

}  // namespace lockstep::sim
