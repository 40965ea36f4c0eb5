// Weights from safetensors files into a module, by the names of its parameters and buffers.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/api/include/torch/nn.h>

#include "base/result.h"
#include "runtime/models/safetensors.h"

namespace lockstep::runtime {

// How a file's names become the module's. Applied in this order.
struct WeightNames {
  // (from, to): replaces the prefix `from` by `to`; only the first pair that fits. {"bert.", ""}
  // removes a prefix, {"", "image."} adds one to all names.
  std::vector<std::pair<std::string, std::string>> prefixes;
  // (from, to): the same for suffixes.
  std::vector<std::pair<std::string, std::string>> suffixes;
  // Tensors of the file that the module may lack, by prefixes of their new names.
  std::vector<std::string> ignored;
  // Tensors of the module that the file may lack, by suffixes of their names. They keep their
  // values.
  std::vector<std::string> optional = {"num_batches_tracked"};  // older files have none

  // torchvision's ResNets, with or without a classifier in the file.
  static WeightNames torchvision();
  // Hugging Face's BertModel, and the BERT inside a model with heads ("bert." before its names);
  // LayerNorm.gamma and .beta, as the first files called them.
  static WeightNames hugging_face();
};

struct LoadedWeights {
  std::size_t tensors = 0;           // loaded
  std::uint64_t values = 0;          // in the loaded tensors
  std::size_t converted = 0;         // loaded tensors that had another floating-point type
  std::vector<std::string> ignored;  // the file's names that were left out
  std::vector<std::string> kept;     // the module's optional names that the file lacks
};

// Copies the tensors of `file` into the parameters and buffers of `module`. Names, shapes and types
// are all checked before the first tensor is written. F16, BF16, F32 and F64 are converted into
// each other; other types must be equal. Errors: tensors that are missing, unexpected, or have
// another shape or type (lists the first few, and what to do); a file that cannot be read.
Result<LoadedWeights> load_weights(torch::nn::Module& module, const SafetensorsFile& file,
                                   const WeightNames& names = {});

// The type in a file for a tensor's type; nothing if a file cannot hold it.
std::optional<StoredType> stored_type_of(at::ScalarType type);
at::ScalarType scalar_type_of(StoredType type);

}  // namespace lockstep::runtime
