#include "runtime/models/encoders.h"

#include <algorithm>

#include "base/check.h"
#include "runtime/models/bert.h"
#include "runtime/models/image_encoder.h"
#include "runtime/models/resnet.h"
#include "runtime/models/text_encoder.h"

namespace lockstep {
namespace {

// Both small encoders end in features of this width, so that their projections have one shape: with
// all else frozen, nothing but a name tells their gradients apart.
constexpr int kSmallWidth = 64;

ImageTower resnet(const ResNetOptions& options) {
  ResNet model(options);
  return {model.ptr(), options.feature_width(), WeightNames::torchvision(),
          [model](const at::Tensor& images) mutable { return model(images); }};
}

TextTower bert(BertOptions options, const InputSpec& input) {
  options.vocabulary = input.vocabulary;
  options.positions = std::max(options.positions, input.max_tokens);
  BertEncoder model(options);
  return {
      model.ptr(), options.width, false, WeightNames::hugging_face(),
      [model](const at::Tensor& ids, const at::Tensor& mask) mutable { return model(ids, mask); }};
}

}  // namespace

ImageTower make_image_tower(const std::string& name) {
  if (name == "resnet-18") return resnet(ResNetOptions::resnet18());
  if (name == "resnet-50") return resnet(ResNetOptions::resnet50());
  LOCKSTEP_CHECK(name == "resnet-small", "an image encoder without an implementation");
  ImageEncoder model(kSmallWidth);
  return {model.ptr(), kSmallWidth, {}, [model](const at::Tensor& images) mutable {
            return model(images);
          }};
}

TextTower make_text_tower(const std::string& name, const InputSpec& input) {
  if (name == "bert-base") return bert(BertOptions::bert_base(), input);
  if (name == "minilm") return bert(BertOptions::minilm(), input);
  LOCKSTEP_CHECK(name == "bert-small", "a text encoder without an implementation");
  TextEncoder model(static_cast<int>(input.vocabulary), static_cast<int>(input.max_tokens),
                    kSmallWidth);
  return {model.ptr(),
          kSmallWidth,
          true,
          {},
          [model](const at::Tensor& ids, const at::Tensor&) mutable { return model(ids); }};
}

}  // namespace lockstep
