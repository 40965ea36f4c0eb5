#include "runtime/models/encoders.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
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

ImageTower resnet(const ResNetOptions& options) {
  return image_tower(ResNet(options), options.feature_width(), WeightNames::torchvision());
}

TextTower bert(BertOptions options, const InputSpec& input) {
  options.vocabulary = input.vocabulary;
  options.positions = std::max(options.positions, input.max_tokens);
  BertEncoder model(options);
  freeze(*model, {"pooler."});  // unused here: it would get no gradient, and stop DDP
  TextTower tower;
  tower.module = model.ptr();
  tower.width = options.width;
  tower.names = WeightNames::hugging_face();
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

ImageTower make_image_tower(const std::string& name) {
  if (name == "resnet-18") return resnet(ResNetOptions::resnet18());
  if (name == "resnet-50") return resnet(ResNetOptions::resnet50());
  LOCKSTEP_CHECK(name == "resnet-small", "an image encoder without an implementation");
  return image_tower(ImageEncoder(kSmallWidth), kSmallWidth, {});
}

TextTower make_text_tower(const std::string& name, const InputSpec& input) {
  if (name == "bert-base") return bert(BertOptions::bert_base(), input);
  if (name == "minilm") return bert(BertOptions::minilm(), input);
  LOCKSTEP_CHECK(name == "bert-small", "a text encoder without an implementation");
  TextEncoder model(static_cast<int>(input.vocabulary), static_cast<int>(input.max_tokens),
                    kSmallWidth);
  TextTower tower;
  tower.module = model.ptr();
  tower.width = kSmallWidth;
  tower.causal = true;
  tower.encode = [model](const at::Tensor& ids, const at::Tensor&) mutable { return model(ids); };
  tower.front = [model](const at::Tensor& ids, const at::Tensor&) mutable {
    return model->front(ids);
  };
  tower.back = [model](const at::Tensor& inner, const at::Tensor&) mutable {
    return model->back(inner);
  };
  tower.in_front = [model](std::string_view parameter) { return model->in_front(parameter); };
  return tower;
}

}  // namespace lockstep
