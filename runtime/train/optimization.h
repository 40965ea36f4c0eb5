// The optimizer, its learning rate, and the clipping of gradients.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <torch/csrc/api/include/torch/optim.h>

#include "runtime/job/scenario.h"
#include "runtime/models/contrastive.h"
#include "runtime/record/recorder.h"

namespace lockstep::runtime {

// LibTorch's SGD or AdamW over these parameters.
std::unique_ptr<torch::optim::Optimizer> make_optimizer(const Scenario::Train& options,
                                                        const NamedTensors& parameters);

// The learning rate of a step (from 0): linear warm-up, (step + 1) / warmup_steps of the full rate;
// then constant, or half a cosine that reaches 0 after the last step (Loshchilov & Hutter, 2017,
// arXiv:1608.03983, one period).
double learning_rate(const Scenario::Train& options, std::int64_t step);
void set_learning_rate(torch::optim::Optimizer& optimizer, double rate);

// Scales the gradients of each parameter group so that their common 2-norm is at most the group's
// limit, as torch.nn.utils.clip_grad_norm_ does. Undefined gradients are skipped.
//
// `whole` turns the squared norm of this rank's tensors into that of the whole group, for gradients
// that are shards. It is called for every group that has a limit, on all ranks. Returns the factor
// of each of these groups, "clip/image" and so on; 1 means not clipped.
std::vector<std::pair<std::string, double>> clip_gradients(
    const Scenario::Train::Clip& limits, const NamedTensors& parameters, Recorder& recorder,
    const std::function<double(double)>& whole = {});

}  // namespace lockstep::runtime
