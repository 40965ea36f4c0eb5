#include "runtime/models/small_encoders.h"

#include <ATen/ATen.h>

#include "runtime/data/shapes.h"
#include "runtime/models/attention.h"

namespace lockstep::runtime {
namespace {

// The BatchNorm that follows removes a bias again, so there is none.
torch::nn::Conv2d encoder_conv(int in, int out, int kernel, int stride) {
  return torch::nn::Conv2d(
      torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

}  // namespace

ResidualBlockImpl::ResidualBlockImpl(int in, int out)
    : conv1_(register_module("conv1", encoder_conv(in, out, 3, 2))),
      conv2_(register_module("conv2", encoder_conv(out, out, 3, 1))),
      shortcut_(register_module("shortcut", encoder_conv(in, out, 1, 2))),
      norm1_(register_module("norm1", torch::nn::BatchNorm2d(out))),
      norm2_(register_module("norm2", torch::nn::BatchNorm2d(out))),
      shortcut_norm_(register_module("shortcut_norm", torch::nn::BatchNorm2d(out))) {}

at::Tensor ResidualBlockImpl::forward(const at::Tensor& x) {
  const at::Tensor inner = norm2_(conv2_(torch::relu(norm1_(conv1_(x)))));
  return torch::relu(inner + shortcut_norm_(shortcut_(x)));
}

ImageEncoderImpl::ImageEncoderImpl(int width)
    : stem_(register_module("stem", encoder_conv(kImageChannels, 16, 5, 2))),
      stem_norm_(register_module("stem_norm", torch::nn::BatchNorm2d(16))),
      block1_(register_module("block1", ResidualBlock(16, 32))),
      block2_(register_module("block2", ResidualBlock(32, 64))),
      out_(register_module("out", torch::nn::Linear(64, width))) {}

at::Tensor ImageEncoderImpl::forward(const at::Tensor& images) { return back(front(images)); }

at::Tensor ImageEncoderImpl::front(const at::Tensor& images) {
  return run_block(block1_, torch::relu(stem_norm_(stem_(images))));
}

at::Tensor ImageEncoderImpl::back(const at::Tensor& inner) {
  return out_(run_block(block2_, inner).mean({2, 3}));
}

bool ImageEncoderImpl::in_front(std::string_view name) const {
  return name.starts_with("stem") || name.starts_with("block1.");
}

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
  const at::Tensor token_positions = at::arange(tokens.size(1), tokens.options());
  return run_block(block1_, token_(tokens) + position_(token_positions));
}

at::Tensor TextEncoderImpl::back(const at::Tensor& inner, const at::Tensor& /*mask*/) {
  return norm_(run_block(block2_, inner));
}

bool TextEncoderImpl::in_front(std::string_view name) const {
  return name.starts_with("token.") || name.starts_with("position.") || name.starts_with("block1.");
}

}  // namespace lockstep::runtime
