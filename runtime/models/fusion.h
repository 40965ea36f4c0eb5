// CrossAttentionFusion: an image attends to its sentence, and a linear head solves a task.
//
//   image features --projection--> query --+
//                                          v
//   text hidden states --projection--> key, value: `layers` times
//     x = norm1(x + attention(x, text, text)),  x = norm2(x + linear2(gelu(linear1(x))))
//                                          v
//                        the average over regions, head --> logits
//
// The attention is torch.nn.MultiheadAttention's, with its parameter names. Parameters:
// image_projection.*, text_projection.*, layers.0.attention.{in_proj_weight, in_proj_bias,
// out_proj.*}, layers.0.{norm1, norm2, linear1, linear2}.*, head.*
#pragma once

#include <vector>

#include <torch/csrc/api/include/torch/nn.h>

#include "runtime/models/fusion_shapes.h"

namespace lockstep::runtime {

// torch.nn.MultiheadAttention(width, heads, batch_first=True), where key and value are one.
class CrossAttentionImpl : public torch::nn::Module {
 public:
  CrossAttentionImpl(std::int64_t width, std::int64_t heads, double dropout);
  // query [n, q, width], memory [n, k, width], its mask [n, k], to [n, q, width].
  at::Tensor forward(const at::Tensor& query, const at::Tensor& memory, const at::Tensor& mask);

 private:
  std::int64_t heads_;
  double dropout_;
  at::Tensor in_weight_, in_bias_;  // [3 width, width], [3 width]: query, key, value
  torch::nn::Linear out_{nullptr};
};
TORCH_MODULE(CrossAttention);

class FusionLayerImpl : public torch::nn::Module {
 public:
  explicit FusionLayerImpl(const FusionOptions& options);
  // image [n, regions, width], text [n, t, width], mask [n, t]; image's shape out.
  at::Tensor forward(const at::Tensor& image, const at::Tensor& text, const at::Tensor& mask);

 private:
  CrossAttention attention_;
  torch::nn::LayerNorm norm1_, norm2_;
  torch::nn::Linear linear1_, linear2_;
  torch::nn::Dropout dropout_;
};
TORCH_MODULE(FusionLayer);

class CrossAttentionFusionImpl : public torch::nn::Module {
 public:
  // `options` have passed check_fusion_options.
  explicit CrossAttentionFusionImpl(const FusionOptions& options);

  // image [n, image_width] or [n, regions, image_width], text [n, t, text_width], mask [n, t] (1: a
  // token, 0: padding) to logits [n, outputs].
  // Throws std::invalid_argument with check_fusion_shapes' message.
  at::Tensor forward(const at::Tensor& image, const at::Tensor& text, const at::Tensor& mask);

 private:
  FusionOptions options_;
  torch::nn::Linear image_projection_, text_projection_;
  std::vector<FusionLayer> layers_;
  torch::nn::Linear head_{nullptr};
};
TORCH_MODULE(CrossAttentionFusion);

}  // namespace lockstep::runtime
