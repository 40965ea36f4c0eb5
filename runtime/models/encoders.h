// Encoders, each behind one face: what the model and the strategies need of one, whatever it is
// made of. The catalog (catalog.h) builds them by name.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <torch/csrc/api/include/torch/nn.h>

#include "runtime/models/bert_options.h"
#include "runtime/models/input_spec.h"
#include "runtime/models/resnet.h"
#include "runtime/models/weights.h"

namespace lockstep {

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

}  // namespace lockstep
