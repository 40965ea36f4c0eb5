// The encoders by their names: the one place where a name becomes an encoder, for a scenario's
// model and for `lockstep-worker model`.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/models/encoders.h"
#include "runtime/models/tensor_table.h"

namespace lockstep {

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

}  // namespace lockstep
