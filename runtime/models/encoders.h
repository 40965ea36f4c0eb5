// Encoders behind a common interface: what the model and the strategies need of one. The catalog
// creates them by name.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <torch/csrc/api/include/torch/nn.h>

#include "base/result.h"
#include "runtime/models/batch.h"
#include "runtime/models/bert_options.h"
#include "runtime/models/resnet.h"
#include "runtime/models/tensor_table.h"
#include "runtime/models/weights.h"

namespace lockstep::runtime {

struct ImageTower {
  std::shared_ptr<torch::nn::Module> module;
  std::int64_t width = 0;
  WeightNames names;  // of files that hold its weights
  // [n, 3, h, w] to [n, width].
  std::function<at::Tensor(const at::Tensor& images)> encode;
  // The same in two halves, back(front(images)), which can be on different ranks.
  std::function<at::Tensor(const at::Tensor& images)> front;  // to [n, channels, h', w']
  std::function<at::Tensor(const at::Tensor& inner)> back;
  // Whether the parameter or buffer of that name (in the module) belongs to the front.
  std::function<bool(std::string_view name)> in_front;
};

struct TextTower {
  std::shared_ptr<torch::nn::Module> module;
  std::int64_t width = 0;
  bool causal = false;  // a token sees only earlier ones
  WeightNames names;
  // ids [n, t] and mask [n, t] (1: a token, 0: padding) to hidden states [n, t, width].
  std::function<at::Tensor(const at::Tensor& ids, const at::Tensor& mask)> encode;
  // In two halves, as the image's: back(front(ids, mask), mask), with [n, t, width] between them.
  std::function<at::Tensor(const at::Tensor& ids, const at::Tensor& mask)> front;
  std::function<at::Tensor(const at::Tensor& inner, const at::Tensor& mask)> back;
  std::function<bool(std::string_view name)> in_front;
};

// The catalog: the only place where a name becomes an encoder, for scenarios and for
// `lockstep-worker model`.

// "resnet-50", "resnet-18", "resnet-tiny", "resnet-small"; "bert-base", "bert-tiny", "minilm",
// "bert-small". The scenario's schema lists those that a scenario may name.
const std::vector<std::string>& model_names();

// The encoder of that name with random weights. An unknown name is a CHECK failure.
ImageTower make_image_tower(const std::string& name);
TextTower make_text_tower(const std::string& name, const InputSpec& input);

// The default input size of an encoder: the side of a picture in pixels; the tokens of a text,
// including the first and last special token (of_shapes: for the sentences of "shapes"). An unknown
// name is a CHECK failure.
int picture_side(const std::string& image_encoder);
int text_length(const std::string& text_encoder, bool of_shapes);

// An encoder, with what is needed to try it.
struct CatalogModel {
  std::shared_ptr<torch::nn::Module> module;
  WeightNames names;  // names in files that hold its weights
  std::string input;  // of one item, in words: "a 3x224x224 picture"
  // Features of `batch` random items, [batch, width]; uses every trained parameter.
  std::function<at::Tensor(std::int64_t batch)> try_random;
};

// Creates it for the inputs that the model was published for. Errors: an unknown name.
Result<CatalogModel> build_model(const std::string& name);

// Parameters, in the order in which they were registered.
std::vector<TensorRow> parameters_of(const torch::nn::Module& module);

}  // namespace lockstep::runtime
