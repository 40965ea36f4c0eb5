// Weights from safetensors files into a module, by the names of its parameters and buffers.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/api/include/torch/nn.h>

#include "base/result.h"
#include "runtime/models/safetensors.h"

namespace lockstep::runtime {

// How a file's names become the module's. Applied in this order.
struct WeightNames {
  // (from, to): a name that begins with `from` begins with `to` instead; only the first pair that
  // fits. {"bert.", ""} takes a prefix off, {"", "image."} puts one before all names.
  std::vector<std::pair<std::string, std::string>> prefixes;
  // (from, to): the same for the ends of names.
  std::vector<std::pair<std::string, std::string>> suffixes;
  // Tensors of the file that the module may lack: beginnings of the names that result.
  std::vector<std::string> ignored;
  // The module's own that the file may lack: ends of its names. They stay as they are.
  std::vector<std::string> optional = {"num_batches_tracked"};  // older files have none

  // torchvision's ResNets, with or without a classifier in the file.
  static WeightNames torchvision();
  // Hugging Face's BertModel, and the BERT inside a model with heads ("bert." before its names);
  // LayerNorm.gamma and .beta, as the first files called them.
  static WeightNames hugging_face();
};

struct LoadedWeights {
  std::size_t tensors = 0;           // that were loaded
  std::uint64_t values = 0;          // in them
  std::size_t converted = 0;         // of them, into another floating-point type
  std::vector<std::string> ignored;  // the file's names that were left out
  std::vector<std::string> kept;     // the module's optional names that the file lacks
};

// Copies the tensors of `file` into the parameters and buffers of `module`. Names, shapes and types
// are all checked before the first is written. F16, BF16, F32 and F64 are converted into each
// other; other types have to be the same.
// Errors: tensors that are missing, unexpected, or of another shape or type (the first few of them,
// and what to do), a file that cannot be read.
Result<LoadedWeights> load_weights(torch::nn::Module& module, const SafetensorsFile& file,
                                   const WeightNames& names = {});

// The types of tensors that a file can hold; nothing for others.
std::optional<StoredType> stored_type_of(at::ScalarType type);
at::ScalarType scalar_type_of(StoredType type);

}  // namespace lockstep::runtime
