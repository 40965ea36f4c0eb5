#include "runtime/models/parameters.h"

namespace lockstep::runtime {

NamedTensors named_parameters(const torch::nn::Module& model) {
  NamedTensors all;
  for (const auto& entry : model.named_parameters()) all.emplace_back(entry.key(), entry.value());
  return all;
}

NamedTensors named_buffers(const torch::nn::Module& model) {
  NamedTensors all;
  for (const auto& entry : model.named_buffers()) all.emplace_back(entry.key(), entry.value());
  return all;
}

NamedTensors trained_parameters(const torch::nn::Module& model) {
  NamedTensors all;
  for (auto& [name, tensor] : named_parameters(model)) {
    if (tensor.requires_grad()) all.emplace_back(name, tensor);
  }
  return all;
}

void freeze(torch::nn::Module& model, const std::vector<std::string>& prefixes) {
  for (auto& [name, tensor] : named_parameters(model)) {
    for (const std::string& prefix : prefixes) {
      if (name.starts_with(prefix)) tensor.set_requires_grad(false);
    }
  }
}

}  // namespace lockstep::runtime
