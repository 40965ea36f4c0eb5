#include "runtime/models/resnet.h"

#include <sstream>
#include <stdexcept>

#include <ATen/ATen.h>

namespace lockstep::runtime {
namespace {

using Block = ResNetOptions::Block;

int expansion(Block block) { return block == Block::kBottleneck ? 4 : 1; }

torch::nn::Conv2d resnet_conv(int in, int out, int kernel, int stride) {
  // The BatchNorm that follows removes a bias again, so there is none.
  torch::nn::Conv2d layer(
      torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
  torch::nn::init::kaiming_normal_(layer->weight, 0, torch::kFanOut, torch::kReLU);
  return layer;
}

void require_images(const at::Tensor& images) {
  if (images.dim() == 4 && images.size(1) == 3 && images.size(2) > 0 && images.size(3) > 0) return;
  std::ostringstream text;
  text << "the image encoder takes [n, 3, height, width] and got " << images.sizes();
  if (images.dim() == 4 && images.size(3) == 3)
    text << ": move the channels to the second dimension";
  throw std::invalid_argument(text.str());
}

}  // namespace

ResNetOptions ResNetOptions::resnet50() { return {}; }

ResNetOptions ResNetOptions::resnet18() {
  ResNetOptions options;
  options.block = Block::kBasic;
  options.blocks = {2, 2, 2, 2};
  return options;
}

ResNetOptions ResNetOptions::resnet_tiny() {
  ResNetOptions options;
  options.block = Block::kBasic;
  options.blocks = {1, 1, 1, 1};
  options.width = 16;
  options.stem_kernel = 3;
  options.stem_pool = false;
  return options;
}

int ResNetOptions::feature_width() const { return width * 8 * expansion(block); }

ResidualStageBlockImpl::ResidualStageBlockImpl(Block kind, int in, int channels, int stride) {
  const int out = channels * expansion(kind);
  const auto add = [this](int from, int to, int kernel, int step) {
    const std::size_t number = convs_.size() + 1;
    convs_.push_back(
        register_module(c10::str("conv", number), resnet_conv(from, to, kernel, step)));
    norms_.push_back(register_module(c10::str("bn", number), torch::nn::BatchNorm2d(to)));
  };
  if (kind == Block::kBasic) {
    add(in, channels, 3, stride);
    add(channels, channels, 3, 1);
  } else {
    add(in, channels, 1, 1);
    add(channels, channels, 3, stride);
    add(channels, out, 1, 1);
  }
  if (stride == 1 && in == out) return;
  const auto downsample = register_module("downsample", torch::nn::ModuleList());
  shortcut_ = resnet_conv(in, out, 1, stride);
  shortcut_norm_ = torch::nn::BatchNorm2d(out);
  downsample->push_back(shortcut_);
  downsample->push_back(shortcut_norm_);
}

at::Tensor ResidualStageBlockImpl::forward(const at::Tensor& x) {
  at::Tensor inner = x;
  for (std::size_t i = 0; i < convs_.size(); ++i) {
    inner = norms_[i](convs_[i](inner));
    if (i + 1 < convs_.size()) inner = torch::relu(inner);
  }
  return torch::relu(inner + (shortcut_.is_empty() ? x : shortcut_norm_(shortcut_(x))));
}

ResNetImpl::ResNetImpl(const ResNetOptions& options)
    : options_(options),
      conv1_(register_module("conv1", resnet_conv(3, options.width, options.stem_kernel, 2))),
      bn1_(register_module("bn1", torch::nn::BatchNorm2d(options.width))) {
  int in = options.width;
  int channels = options.width;
  for (std::size_t stage = 0; stage < options.blocks.size(); ++stage) {
    const auto layer = register_module(c10::str("layer", stage + 1), torch::nn::ModuleList());
    for (int i = 0; i < options.blocks[stage]; ++i) {
      const int stride = stage > 0 && i == 0 ? 2 : 1;
      blocks_.emplace_back(options.block, in, channels, stride);
      layer->push_back(blocks_.back());
      in = channels * expansion(options.block);
    }
    channels *= 2;
  }
}

at::Tensor ResNetImpl::forward(const at::Tensor& images) { return back(front(images)); }

at::Tensor ResNetImpl::front(const at::Tensor& images) {
  require_images(images);
  at::Tensor x = torch::relu(bn1_(conv1_(images)));
  if (options_.stem_pool) x = at::max_pool2d(x, {3, 3}, {2, 2}, {1, 1});
  for (std::size_t i = 0; i < blocks_.size() / 2; ++i) x = run_block(blocks_[i], x);
  return x;
}

at::Tensor ResNetImpl::back(const at::Tensor& inner) {
  at::Tensor x = inner;
  for (std::size_t i = blocks_.size() / 2; i < blocks_.size(); ++i) x = run_block(blocks_[i], x);
  return at::adaptive_avg_pool2d(x, {1, 1}).flatten(1);
}

// "layer2.0.conv1.weight" is of the first block of the second layer.
bool ResNetImpl::in_front(std::string_view name) const {
  if (name.starts_with("conv1.") || name.starts_with("bn1.")) return true;
  std::size_t number = 0;
  for (std::size_t layer = 0; layer < options_.blocks.size(); ++layer) {
    for (int i = 0; i < options_.blocks[layer]; ++i, ++number) {
      if (name.starts_with(c10::str("layer", layer + 1, ".", i, ".")))
        return number < blocks_.size() / 2;
    }
  }
  return false;
}

}  // namespace lockstep::runtime
