#include "runtime/models/image_encoder.h"

#include "runtime/data/shapes.h"

namespace lockstep {
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

}  // namespace lockstep
