// A module's parameters and buffers under their names.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/api/include/torch/nn/module.h>

namespace lockstep {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// In registration order, which is the same on every rank.
NamedTensors named_parameters(const torch::nn::Module& model);
NamedTensors named_buffers(const torch::nn::Module& model);
// Those that are trained: gradients are computed for them.
NamedTensors trained_parameters(const torch::nn::Module& model);

// Stops the training of every parameter whose name starts with one of the prefixes.
void freeze(torch::nn::Module& model, const std::vector<std::string>& prefixes);

}  // namespace lockstep
