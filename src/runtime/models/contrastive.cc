#include "runtime/models/contrastive.h"

#include <cmath>

#include <ATen/ATen.h>

namespace lockstep {
namespace {

// Both encoders end in features of this width, so the two projections have one shape: with all else
// frozen, nothing but a name tells their gradients apart.
constexpr int kFeatureWidth = 64;
constexpr double kFirstTemperature = 0.1;

torch::nn::Linear projection(int in, int out) {
  return torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(false));
}

at::Tensor unit(const at::Tensor& x) {
  return torch::nn::functional::normalize(x, torch::nn::functional::NormalizeFuncOptions().dim(-1));
}

}  // namespace

ContrastiveModelImpl::ContrastiveModelImpl(int embed_dim)
    : logit_scale_(register_parameter("logit_scale",
                                      at::full({1}, std::log(1 / kFirstTemperature), at::kFloat))),
      image_(register_module("image", ImageEncoder(kFeatureWidth))),
      image_proj_(register_module("image_proj", projection(kFeatureWidth, embed_dim))),
      text_(register_module(
          "text", TextEncoder(static_cast<int>(vocabulary().size()), kMaxTokens, kFeatureWidth))),
      text_proj_(register_module("text_proj", projection(kFeatureWidth, embed_dim))),
      text_head_(register_module(
          "text_head",
          torch::nn::Linear(embed_dim, static_cast<std::int64_t>(vocabulary().size())))) {}

at::Tensor ContrastiveModelImpl::project_images(const at::Tensor& images) {
  return image_proj_(image_(images));
}

at::Tensor ContrastiveModelImpl::embed_images(const at::Tensor& images) {
  return unit(project_images(images));
}

at::Tensor ContrastiveModelImpl::embed_sentences(const at::Tensor& tokens) {
  return unit(sentence_of(text_proj_(text_(tokens)), tokens));
}

// The projected features at each sentence's end token.
at::Tensor ContrastiveModelImpl::sentence_of(const at::Tensor& projected,
                                             const at::Tensor& tokens) const {
  const at::Tensor end = (tokens == kEndToken).to(at::kLong).argmax(1);
  return projected.index({at::arange(tokens.size(0), at::kLong), end});
}

Losses ContrastiveModelImpl::losses(const Batch& batch, FeatureGather* gather) {
  Losses losses;
  const at::Tensor projected = text_proj_(text_(batch.tokens));
  const auto length = batch.tokens.size(1);
  const at::Tensor logits = text_head_(projected.slice(1, 0, length - 1));
  losses.text = torch::nn::functional::cross_entropy(
      logits.flatten(0, 1), batch.tokens.slice(1, 1, length).flatten(),
      torch::nn::functional::CrossEntropyFuncOptions().ignore_index(kPadToken));
  losses.total = losses.text;
  if (!batch.has_image()) return losses;

  const at::Tensor images = embed_images(batch.images);
  const at::Tensor sentences =
      unit(sentence_of(projected, batch.tokens).index_select(0, batch.image_rows));
  FeatureGather::Gathered all_images{images, 0};
  FeatureGather::Gathered all_sentences{sentences, 0};
  if (gather != nullptr) {
    all_images = gather->gather(images, "image_features");
    all_sentences = gather->gather(sentences, "text_features");
  }
  const at::Tensor scale = logit_scale_.exp();
  const at::Tensor right = at::arange(images.size(0), at::kLong) + all_images.offset;
  const auto told_apart = [&](const at::Tensor& from, const at::Tensor& among) {
    return torch::nn::functional::cross_entropy(scale * at::matmul(from, among.t()), right);
  };
  losses.contrastive =
      (told_apart(images, all_sentences.all) + told_apart(sentences, all_images.all)) / 2;
  losses.total = losses.total + losses.contrastive;
  return losses;
}

NamedTensors named_parameters(const torch::nn::Module& model) {
  NamedTensors all;
  for (const auto& entry : model.named_parameters()) all.emplace_back(entry.key(), entry.value());
  return all;
}

NamedTensors named_buffers(const torch::nn::Module& model) {
  NamedTensors all;
  for (const auto& entry : model.named_buffers()) all.emplace_back(entry.key(), entry.value());
  return all;
}

NamedTensors trained_parameters(const torch::nn::Module& model) {
  NamedTensors all;
  for (auto& [name, tensor] : named_parameters(model)) {
    if (tensor.requires_grad()) all.emplace_back(name, tensor);
  }
  return all;
}

void freeze(torch::nn::Module& model, const std::vector<std::string>& prefixes) {
  for (auto& [name, tensor] : named_parameters(model)) {
    for (const std::string& prefix : prefixes) {
      if (name.starts_with(prefix)) tensor.set_requires_grad(false);
    }
  }
}

}  // namespace lockstep
