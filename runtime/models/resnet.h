// ResNet: the residual networks of He et al., "Deep Residual Learning for Image Recognition"
// (arXiv:1512.03385), as torchvision builds them: a bottleneck's stride is in its 3x3 convolution.
//
// Parameters and buffers have torchvision's names (conv1.weight, bn1.running_mean,
// layer1.0.downsample.0.weight, ...), so that its weights load as they are: weights.h. There is no
// classifier.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include <torch/csrc/api/include/torch/nn.h>

#include "runtime/models/block.h"

namespace lockstep::runtime {

struct ResNetOptions {
  enum class Block {
    kBasic,       // two 3x3 convolutions
    kBottleneck,  // 1x1, 3x3, 1x1 to four times the channels
  };
  Block block = Block::kBottleneck;
  std::array<int, 4> blocks = {3, 4, 6, 3};  // in each of the four stages
  int width = 64;                            // channels of the first stage; each later one doubles
  int stem_kernel = 7;                       // of the first convolution, whose stride is 2
  bool stem_pool = true;                     // a 3x3 maximum with stride 2 after it

  static ResNetOptions resnet50();
  static ResNetOptions resnet18();
  // 0.3 million parameters for pictures of 32x32: basic blocks, 16 channels, a 3x3 stem, no pool.
  static ResNetOptions resnet_tiny();

  // Features that the encoder gives for an image: 2048 for ResNet-50.
  int feature_width() const;
};

class ResidualStageBlockImpl : public ModelBlock {
 public:
  ResidualStageBlockImpl(ResNetOptions::Block kind, int in, int channels, int stride);
  // [n, in, h, w] to [n, out, ceil(h / stride), ceil(w / stride)]
  at::Tensor forward(const at::Tensor& x);

 private:
  std::vector<torch::nn::Conv2d> convs_;
  std::vector<torch::nn::BatchNorm2d> norms_;
  torch::nn::Conv2d shortcut_{nullptr};  // empty where the input is added as it is
  torch::nn::BatchNorm2d shortcut_norm_{nullptr};
};
TORCH_MODULE(ResidualStageBlock);

class ResNetImpl : public torch::nn::Module {
 public:
  // Fresh weights as torchvision's: Kaiming-normal by fan-out, BatchNorm 1 and 0.
  explicit ResNetImpl(const ResNetOptions& options);

  // float [n, 3, h, w] of any h and w to [n, feature_width()]: the average over the picture.
  // Throws std::invalid_argument for other shapes.
  at::Tensor forward(const at::Tensor& images);
  // The same in two halves: forward(images) is back(front(images)). in_front: whose a
  // parameter or buffer is. The front ends with half of the blocks.
  at::Tensor front(const at::Tensor& images);
  at::Tensor back(const at::Tensor& inner);
  bool in_front(std::string_view name) const;

 private:
  ResNetOptions options_;
  torch::nn::Conv2d conv1_;
  torch::nn::BatchNorm2d bn1_;
  std::vector<ResidualStageBlock> blocks_;
};
TORCH_MODULE(ResNet);

}  // namespace lockstep::runtime
