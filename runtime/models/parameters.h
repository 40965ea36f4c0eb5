// A module's parameters and buffers under their names.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <torch/csrc/api/include/torch/nn/module.h>

namespace lockstep::runtime {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// In registration order, which is the same on every rank.
NamedTensors named_parameters(const torch::nn::Module& model);
NamedTensors named_buffers(const torch::nn::Module& model);
// Those that are trained: gradients are computed for them.
NamedTensors trained_parameters(const torch::nn::Module& model);

// Stops the training of every parameter whose name starts with one of the prefixes.
void freeze(torch::nn::Module& model, const std::vector<std::string>& prefixes);

// Which part of the model a parameter belongs to, by its name.

enum class Branch {
  image,   // image.*, image_experts.*, image_proj.*, logit_scale: of a batch without images, none
  text,    // text.*, text_proj.*, text_head.*
  fusion,  // fusion.*: needs both
};

inline Branch branch_of(std::string_view parameter) {
  if (parameter.starts_with("image.") || parameter.starts_with("image_experts.") ||
      parameter.starts_with("image_proj.") || parameter == "logit_scale") {
    return Branch::image;
  }
  return parameter.starts_with("fusion.") ? Branch::fusion : Branch::text;
}

// Whether a batch without images leaves the parameter without a gradient.
inline bool needs_images(std::string_view parameter) {
  return branch_of(parameter) != Branch::text;
}

}  // namespace lockstep::runtime
