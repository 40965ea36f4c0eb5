#include "runtime/models/encoders.h"

#include <algorithm>
#include <utility>

#include "runtime/models/bert.h"
#include "runtime/models/image_encoder.h"
#include "runtime/models/named_tensors.h"
#include "runtime/models/resnet.h"
#include "runtime/models/text_encoder.h"

namespace lockstep {
namespace {

// Both small encoders end in features of this width, so that their projections have one shape: with
// all else frozen, nothing but a name tells their gradients apart.
constexpr int kSmallWidth = 64;

// Fills in what every image encoder with front() and back() offers.
template <class Model>
ImageTower image_tower(Model model, std::int64_t width, WeightNames names) {
  ImageTower tower;
  tower.module = model.ptr();
  tower.width = width;
  tower.names = std::move(names);
  tower.encode = [model](const at::Tensor& images) mutable { return model(images); };
  tower.front = [model](const at::Tensor& images) mutable { return model->front(images); };
  tower.back = [model](const at::Tensor& inner) mutable { return model->back(inner); };
  tower.in_front = [model](std::string_view parameter) { return model->in_front(parameter); };
  return tower;
}

// The same of a text encoder.
template <class Model>
TextTower text_tower(Model model, std::int64_t width, WeightNames names) {
  TextTower tower;
  tower.module = model.ptr();
  tower.width = width;
  tower.names = std::move(names);
  tower.encode = [model](const at::Tensor& ids, const at::Tensor& mask) mutable {
    return model(ids, mask);
  };
  tower.front = [model](const at::Tensor& ids, const at::Tensor& mask) mutable {
    return model->front(ids, mask);
  };
  tower.back = [model](const at::Tensor& inner, const at::Tensor& mask) mutable {
    return model->back(inner, mask);
  };
  tower.in_front = [model](std::string_view parameter) { return model->in_front(parameter); };
  return tower;
}

}  // namespace

ImageTower tower_of(const ResNetOptions& options) {
  return image_tower(ResNet(options), options.feature_width(), WeightNames::torchvision());
}

ImageTower small_image_tower() { return image_tower(ImageEncoder(kSmallWidth), kSmallWidth, {}); }

TextTower tower_of(BertOptions options, const InputSpec& input) {
  options.vocabulary = input.vocabulary;
  options.positions = std::max(options.positions, input.max_tokens);
  BertEncoder model(options);
  freeze(*model, {"pooler."});  // unused here: it would get no gradient, and stop DDP
  return text_tower(model, options.width, WeightNames::hugging_face());
}

TextTower small_text_tower(const InputSpec& input) {
  TextEncoder model(static_cast<int>(input.vocabulary), static_cast<int>(input.max_tokens),
                    kSmallWidth);
  TextTower tower = text_tower(model, kSmallWidth, {});
  tower.causal = true;
  return tower;
}

}  // namespace lockstep
