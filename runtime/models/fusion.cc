#include "runtime/models/fusion.h"

#include <stdexcept>

#include <ATen/ATen.h>

#include "base/check.h"
#include "runtime/models/attention.h"

namespace lockstep::runtime {
namespace {

torch::nn::LayerNorm fusion_layer_norm(std::int64_t width) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}));
}

}  // namespace

CrossAttentionImpl::CrossAttentionImpl(std::int64_t width, std::int64_t heads, double dropout)
    : heads_(heads),
      dropout_(dropout),
      in_weight_(register_parameter("in_proj_weight", at::empty({3 * width, width}))),
      in_bias_(register_parameter("in_proj_bias", at::zeros({3 * width}))),
      out_(register_module("out_proj", torch::nn::Linear(width, width))) {
  torch::nn::init::xavier_uniform_(in_weight_);
  torch::nn::init::zeros_(out_->bias);
}

at::Tensor CrossAttentionImpl::forward(const at::Tensor& query, const at::Tensor& memory,
                                       const at::Tensor& mask) {
  const std::int64_t width = query.size(2);
  const at::Tensor q =
      at::linear(query, in_weight_.narrow(0, 0, width), in_bias_.narrow(0, 0, width));
  const at::Tensor key_value = at::linear(memory, in_weight_.narrow(0, width, 2 * width),
                                          in_bias_.narrow(0, width, 2 * width));
  const at::Tensor key = key_value.narrow(2, 0, width);
  const at::Tensor value = key_value.narrow(2, width, width);
  return out_(attend(q, key, value, heads_, mask, is_training() ? dropout_ : 0.0));
}

FusionLayerImpl::FusionLayerImpl(const FusionOptions& o)
    : attention_(register_module("attention", CrossAttention(o.width, o.heads, o.dropout))),
      norm1_(register_module("norm1", fusion_layer_norm(o.width))),
      norm2_(register_module("norm2", fusion_layer_norm(o.width))),
      linear1_(register_module("linear1", torch::nn::Linear(o.width, o.feed_forward))),
      linear2_(register_module("linear2", torch::nn::Linear(o.feed_forward, o.width))),
      dropout_(register_module("dropout", torch::nn::Dropout(o.dropout))) {}

at::Tensor FusionLayerImpl::forward(const at::Tensor& image, const at::Tensor& text,
                                    const at::Tensor& mask) {
  const at::Tensor seen = norm1_(image + dropout_(attention_(image, text, mask)));
  return norm2_(seen + dropout_(linear2_(dropout_(at::gelu(linear1_(seen))))));
}

CrossAttentionFusionImpl::CrossAttentionFusionImpl(const FusionOptions& options)
    : options_(options),
      image_projection_(register_module("image_projection",
                                        torch::nn::Linear(options.image_width, options.width))),
      text_projection_(register_module("text_projection",
                                       torch::nn::Linear(options.text_width, options.width))) {
  const Status sound = check_fusion_options(options);
  LOCKSTEP_CHECK(static_cast<bool>(sound), "options that passed check_fusion_options");
  const auto layers = register_module("layers", torch::nn::ModuleList());
  for (std::int64_t i = 0; i < options.layers; ++i) {
    layers_.emplace_back(options);
    layers->push_back(layers_.back());
  }
  head_ = register_module("head", torch::nn::Linear(options.width, options.outputs));
}

at::Tensor CrossAttentionFusionImpl::forward(const at::Tensor& image, const at::Tensor& text,
                                             const at::Tensor& mask) {
  const Status fit = check_fusion_shapes(options_, image.sizes(), text.sizes(), mask.sizes());
  if (!fit)
    throw std::invalid_argument(c10::str(fit.error().message, "\n  fix: ", fit.error().fix));
  at::Tensor x = image_projection_(image.dim() == 2 ? image.unsqueeze(1) : image);
  const at::Tensor memory = text_projection_(text);
  for (FusionLayer& layer : layers_) x = layer(x, memory, mask);
  return head_(x.mean(1));
}

}  // namespace lockstep::runtime
