#include "runtime/models/catalog.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "base/text.h"
#include "runtime/models/bert.h"
#include "runtime/models/resnet.h"

namespace lockstep {
namespace {

CatalogModel image_model(const ResNetOptions& options, std::int64_t side) {
  ResNet model(options);
  const std::string length = std::to_string(side);
  return {model.ptr(), WeightNames::torchvision(), "a 3x" + length + "x" + length + " picture",
          [model, side](std::int64_t batch) mutable {
            return model(at::randn({batch, 3, side, side}));
          }};
}

CatalogModel text_model(const BertOptions& options) {
  BertEncoder model(options);
  constexpr std::int64_t kTokens = 128;
  return {model.ptr(), WeightNames::hugging_face(), std::to_string(kTokens) + " tokens",
          [model, options](std::int64_t batch) mutable {
            const at::Tensor ids = at::randint(options.vocabulary, {batch, kTokens}, at::kLong);
            const at::Tensor mask = at::ones_like(ids);
            const at::Tensor hidden = model(ids, mask);
            return model->pooled(hidden) + mean_of_tokens(hidden, mask);
          }};
}

}  // namespace

const std::vector<std::string>& model_names() {
  static const std::vector<std::string> names = {"resnet-50", "resnet-18", "resnet-tiny",
                                                 "bert-base", "bert-tiny", "minilm"};
  return names;
}

Result<CatalogModel> build_model(const std::string& name) {
  if (name == "resnet-50") return image_model(ResNetOptions::resnet50(), 224);
  if (name == "resnet-18") return image_model(ResNetOptions::resnet18(), 224);
  if (name == "resnet-tiny") return image_model(ResNetOptions::resnet_tiny(), 32);
  if (name == "bert-base") return text_model(BertOptions::bert_base());
  if (name == "bert-tiny") return text_model(BertOptions::bert_tiny());
  if (name == "minilm") return text_model(BertOptions::minilm());
  const std::string near = nearest(name, model_names());
  return Error{"no model is called '" + printable(name) + "'",
               {},
               near.empty() ? "choose " + join_and(model_names()) : "did you mean '" + near + "'?"};
}

std::vector<TensorRow> parameters_of(const torch::nn::Module& module) {
  std::vector<TensorRow> rows;
  for (const auto& entry : module.named_parameters()) {
    const at::Tensor& tensor = entry.value();
    const auto type = stored_type_of(tensor.scalar_type());
    rows.push_back({entry.key(), type ? std::string(name_of(*type)) : "?", tensor.sizes().vec(),
                    static_cast<std::uint64_t>(tensor.numel()), tensor.nbytes()});
  }
  return rows;
}

}  // namespace lockstep
