#include "runtime/models/text_encoder.h"

#include <ATen/ATen.h>

#include "runtime/models/attention.h"

namespace lockstep {
namespace {

constexpr int kHeads = 4;

torch::nn::LayerNorm text_layer_norm(int width) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}));
}

}  // namespace

TextBlockImpl::TextBlockImpl(int width, int heads)
    : heads_(heads),
      norm1_(register_module("norm1", text_layer_norm(width))),
      norm2_(register_module("norm2", text_layer_norm(width))),
      qkv_(register_module("qkv", torch::nn::Linear(width, 3 * width))),
      merge_(register_module("merge", torch::nn::Linear(width, width))),
      up_(register_module("up", torch::nn::Linear(width, 2 * width))),
      down_(register_module("down", torch::nn::Linear(2 * width, width))) {}

at::Tensor TextBlockImpl::attend(const at::Tensor& x) {
  const auto n = x.size(0);
  const auto length = x.size(1);
  const auto width = x.size(2);
  // [3, n, heads, length, width / heads]
  const at::Tensor qkv =
      qkv_(x).view({n, length, 3, heads_, width / heads_}).permute({2, 0, 3, 1, 4});
  const at::Tensor mixed = attend_heads(qkv[0], qkv[1], qkv[2], {}, 0.0, /*causal=*/true);
  return merge_(mixed.transpose(1, 2).reshape({n, length, width}));
}

at::Tensor TextBlockImpl::forward(const at::Tensor& x) {
  const at::Tensor attended = x + attend(norm1_(x));
  return attended + down_(torch::gelu(up_(norm2_(attended))));
}

TextEncoderImpl::TextEncoderImpl(int vocabulary, int max_tokens, int width)
    : token_(register_module("token", torch::nn::Embedding(vocabulary, width))),
      position_(register_module("position", torch::nn::Embedding(max_tokens, width))),
      block1_(register_module("block1", TextBlock(width, kHeads))),
      block2_(register_module("block2", TextBlock(width, kHeads))),
      norm_(register_module("norm", text_layer_norm(width))) {}

at::Tensor TextEncoderImpl::forward(const at::Tensor& tokens, const at::Tensor& mask) {
  return back(front(tokens, mask), mask);
}

at::Tensor TextEncoderImpl::front(const at::Tensor& tokens, const at::Tensor& /*mask*/) {
  const at::Tensor places = at::arange(tokens.size(1), tokens.options());
  return run_block(block1_, token_(tokens) + position_(places));
}

at::Tensor TextEncoderImpl::back(const at::Tensor& inner, const at::Tensor& /*mask*/) {
  return norm_(run_block(block2_, inner));
}

bool TextEncoderImpl::in_front(std::string_view name) const {
  return name.starts_with("token.") || name.starts_with("position.") || name.starts_with("block1.");
}

}  // namespace lockstep
