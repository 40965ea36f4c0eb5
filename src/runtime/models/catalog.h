// The models that people name, and what is needed to try one: its weights' names and an input.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/api/include/torch/nn.h>

#include "base/result.h"
#include "runtime/models/tensor_table.h"
#include "runtime/models/weights.h"

namespace lockstep {

struct CatalogModel {
  std::shared_ptr<torch::nn::Module> module;
  WeightNames names;  // how files that hold its weights call them
  std::string input;  // of one item, in words: "a 3x224x224 picture"
  // Features of `batch` random items, [batch, width]; goes through every parameter.
  std::function<at::Tensor(std::int64_t batch)> try_random;
};

// "resnet-50", "resnet-18", "resnet-tiny", "bert-base", "bert-tiny", "minilm".
const std::vector<std::string>& model_names();

// Fresh weights. Errors: a name that is none of these.
Result<CatalogModel> build_model(const std::string& name);

// Parameters, in the order in which they were registered.
std::vector<TensorRow> parameters_of(const torch::nn::Module& module);

}  // namespace lockstep
