// The default encoders of a scenario, small enough to train on a CPU: "resnet-small" (ImageEncoder)
// and "bert-small" (TextEncoder).
#pragma once

#include <string_view>

#include <torch/csrc/api/include/torch/nn.h>

#include "runtime/models/block.h"

namespace lockstep::runtime {

class ResidualBlockImpl : public ModelBlock {
 public:
  ResidualBlockImpl(int in, int out);
  at::Tensor forward(const at::Tensor& x);  // [n, in, side, side] to [n, out, side / 2, side / 2]

 private:
  torch::nn::Conv2d conv1_, conv2_, shortcut_;
  torch::nn::BatchNorm2d norm1_, norm2_, shortcut_norm_;
};
TORCH_MODULE(ResidualBlock);

// A strided convolution, two residual blocks that halve the picture, all with BatchNorm, an average
// over the picture, and a linear layer.
class ImageEncoderImpl : public torch::nn::Module {
 public:
  explicit ImageEncoderImpl(int width);
  at::Tensor forward(const at::Tensor& images);  // [n, 3, side, side] to [n, width]
  // The same in two halves: forward(x) is back(front(x)). in_front: whose a parameter or buffer is.
  at::Tensor front(const at::Tensor& images);
  at::Tensor back(const at::Tensor& inner);
  bool in_front(std::string_view name) const;

 private:
  torch::nn::Conv2d stem_;
  torch::nn::BatchNorm2d stem_norm_;
  ResidualBlock block1_, block2_;
  torch::nn::Linear out_;
};
TORCH_MODULE(ImageEncoder);

// A pre-norm transformer block with causal attention.
class TextBlockImpl : public ModelBlock {
 public:
  TextBlockImpl(int width, int heads);
  at::Tensor forward(const at::Tensor& x);  // [n, tokens, width], the same out

 private:
  at::Tensor attend(const at::Tensor& x);

  int heads_;
  torch::nn::LayerNorm norm1_, norm2_;
  torch::nn::Linear qkv_, merge_, up_, down_;
};
TORCH_MODULE(TextBlock);

// Token and position embeddings and two blocks. Unlike BERT's, attention is causal, so that one
// pass serves both losses: every position predicts its next word, and the end token has seen the
// whole sentence.
class TextEncoderImpl : public torch::nn::Module {
 public:
  TextEncoderImpl(int vocabulary, int max_tokens, int width);
  // int64 [n, tokens] to [n, tokens, width]. Padding may follow the end token: with causal
  // attention nothing before it sees it, so the mask that other text encoders take changes nothing.
  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& mask);
  // The same in two halves: forward(x) is back(front(x)). in_front: whose a parameter or buffer is.
  at::Tensor front(const at::Tensor& tokens, const at::Tensor& mask);
  at::Tensor back(const at::Tensor& inner, const at::Tensor& mask);
  bool in_front(std::string_view name) const;

 private:
  torch::nn::Embedding token_, position_;
  TextBlock block1_, block2_;
  torch::nn::LayerNorm norm_;
};
TORCH_MODULE(TextEncoder);

}  // namespace lockstep::runtime
