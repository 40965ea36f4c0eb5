// TextEncoder "bert-small": token and position embeddings and two pre-norm transformer blocks.
//
// Unlike BERT's, attention is causal, so that one pass serves both losses: every position predicts
// its next word, and the end token has seen the whole sentence.
#pragma once

#include <string_view>

#include <torch/csrc/api/include/torch/nn.h>

#include "runtime/models/block.h"

namespace lockstep {

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

}  // namespace lockstep
