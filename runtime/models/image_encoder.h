// ImageEncoder "resnet-small": a strided convolution, two residual blocks that halve the picture,
// all with BatchNorm, an average over the picture, and a linear layer.
#pragma once

#include <string_view>

#include <torch/csrc/api/include/torch/nn.h>

#include "runtime/models/block.h"

namespace lockstep {

class ResidualBlockImpl : public ModelBlock {
 public:
  ResidualBlockImpl(int in, int out);
  at::Tensor forward(const at::Tensor& x);  // [n, in, side, side] to [n, out, side / 2, side / 2]

 private:
  torch::nn::Conv2d conv1_, conv2_, shortcut_;
  torch::nn::BatchNorm2d norm1_, norm2_, shortcut_norm_;
};
TORCH_MODULE(ResidualBlock);

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

}  // namespace lockstep
