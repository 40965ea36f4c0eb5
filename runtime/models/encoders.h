// Encoders, each behind one face: what the model and the strategies need of one, whatever it is
// made of. The catalog builds them by name.
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
  // The same in two halves, back(front(images)), for those who put them on different ranks.
  std::function<at::Tensor(const at::Tensor& images)> front;  // to [n, channels, h', w']
  std::function<at::Tensor(const at::Tensor& inner)> back;
  // Whether the parameter or buffer of that name, as the module calls it, is the front's.
  std::function<bool(std::string_view name)> in_front;
};

struct TextTower {
  std::shared_ptr<torch::nn::Module> module;
  std::int64_t width = 0;
  bool causal = false;  // a token sees those before it only
  WeightNames names;
  // ids [n, t] and mask [n, t] (1: a token, 0: padding) to hidden states [n, t, width].
  std::function<at::Tensor(const at::Tensor& ids, const at::Tensor& mask)> encode;
  // In two halves, as the image's: back(front(ids, mask), mask), with [n, t, width] between them.
  std::function<at::Tensor(const at::Tensor& ids, const at::Tensor& mask)> front;
  std::function<at::Tensor(const at::Tensor& inner, const at::Tensor& mask)> back;
  std::function<bool(std::string_view name)> in_front;
};

// Each makes the encoder with fresh weights.
ImageTower tower_of(const ResNetOptions& options);
// `input` says how many words there are, and at least how many positions.
TextTower tower_of(BertOptions options, const InputSpec& input);
ImageTower small_image_tower();
TextTower small_text_tower(const InputSpec& input);

// The encoders by their names: the one place where a name becomes an encoder, for a scenario's
// model and for `lockstep-worker model`.

// "resnet-50", "resnet-18", "resnet-tiny", "resnet-small"; "bert-base", "bert-tiny", "minilm",
// "bert-small". The scenario's schema lists those that a scenario may name.
const std::vector<std::string>& model_names();

// The encoder of that name with fresh weights. A name that is none of that kind is a CHECK.
ImageTower make_image_tower(const std::string& name);
TextTower make_text_tower(const std::string& name, const InputSpec& input);

// What such an encoder was made for, and gets where nobody says otherwise: the side of a picture in
// pixels; the tokens of an item, with the two that begin and end it (of_shapes: of the sentences of
// "shapes"). A name that is none of that kind is a CHECK.
int picture_side(const std::string& image_encoder);
int text_length(const std::string& text_encoder, bool of_shapes);

// An encoder, and what is needed to try it.
struct CatalogModel {
  std::shared_ptr<torch::nn::Module> module;
  WeightNames names;  // how files that hold its weights call them
  std::string input;  // of one item, in words: "a 3x224x224 picture"
  // Features of `batch` random items, [batch, width]; goes through every parameter that is trained.
  std::function<at::Tensor(std::int64_t batch)> try_random;
};

// Made for the inputs that the model was published for. Errors: a name that is no model's.
Result<CatalogModel> build_model(const std::string& name);

// Parameters, in the order in which they were registered.
std::vector<TensorRow> parameters_of(const torch::nn::Module& module);

}  // namespace lockstep::runtime
