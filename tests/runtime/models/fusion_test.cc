// CrossAttentionFusion: PyTorch's numbers (make_fusion_reference.py), masks, and what is refused.
#include "runtime/models/fusion.h"

#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/models/wave.h"

namespace lockstep::runtime {
namespace {

using testing::HasSubstr;

FusionOptions small() {
  FusionOptions options;
  options.image_width = 24;
  options.text_width = 12;
  options.width = 16;
  options.feed_forward = 24;
  options.outputs = 3;
  options.dropout = 0;
  return options;
}

void fill_with_waves(torch::nn::Module& model) {
  const torch::NoGradGuard no_grad;
  double offset = 0;
  for (const at::Tensor& parameter : model.parameters()) {
    parameter.copy_(wave(parameter.sizes(), 0.37, offset++, 0.1));
  }
}

TEST(Fusion, ALayerComputesWhatPyTorchsModulesCompute) {
  at::set_num_threads(1);
  FusionLayer layer(small());
  fill_with_waves(*layer);
  const at::Tensor image = wave({2, 3, 16}, 0.37, 20, 1).requires_grad_();
  const at::Tensor text = wave({2, 5, 16}, 0.37, 21, 1).requires_grad_();
  const at::Tensor mask = at::tensor({1, 1, 1, 1, 1, 1, 1, 0, 0, 0}, at::kLong).reshape({2, 5});
  const at::Tensor out = layer(image, text, mask);
  (out * wave(out.sizes(), 0.37, 22, 1)).sum().backward();
  constexpr double kTolerance = 1e-6;
  EXPECT_LT(largest_difference(
                out[0][2], {0.09429102, 0.07189912, 0.05002638, 0.03059473, 0.05990392, 0.1565646,
                            0.104312, 0.1216359, 0.001138285, -0.06927369, -0.1150317, -0.08730852,
                            -0.1137751, -0.01012161, -0.01065133, 0.05513426}),
            kTolerance);
  EXPECT_LT(largest_difference(
                text.grad()[1][1],
                {-0.006325448, -0.006094648, -0.005038968, -0.003301286, -0.001116792, 0.001218856,
                 0.003389538, 0.00510146, 0.006122925, 0.00631568, 0.005653638, 0.004226402,
                 0.002227143, -7.355046e-05, -0.002364288, -0.004335031}),
            kTolerance);
  EXPECT_LT(
      largest_difference(image.grad()[0][0],
                         {-0.01083691, -0.009267958, 0.001531266, 0.01928412, 0.02253975,
                          0.008710838, -0.004941498, -0.0047729, 0.00757649, 0.01873798, 0.01266964,
                          -0.01006025, -0.02319567, -0.02334142, -0.007232248, 0.003477592}),
      kTolerance);
}

TEST(Fusion, AttentionComputesWhatPyTorchsComputes) {
  at::set_num_threads(1);
  CrossAttention attention(16, 8, 0.0);
  fill_with_waves(*attention);
  const torch::NoGradGuard no_grad;
  const at::Tensor mask = at::tensor({1, 1, 1, 1, 1, 1, 1, 0, 0, 0}, at::kLong).reshape({2, 5});
  const at::Tensor seen =
      attention(wave({2, 3, 16}, 0.37, 20, 1), wave({2, 5, 16}, 0.37, 21, 1), mask);
  EXPECT_LT(
      largest_difference(seen[1][0], {0.198956, 0.4184375, 0.58344, 0.6726024, 0.6744193, 0.5887271,
                                      0.4267132, 0.2094573, -0.03481222, -0.274385, -0.4781844,
                                      -0.6197976, -0.6808978, -0.6536155, -0.5415505, -0.3592975}),
      1e-6);
}

TEST(Fusion, GivesLogitsForPooledFeaturesAndForRegions) {
  CrossAttentionFusion fusion(small());
  const at::Tensor text = at::randn({4, 5, 12});
  const at::Tensor mask = at::ones({4, 5});
  EXPECT_EQ(fusion(at::randn({4, 24}), text, mask).sizes(), at::IntArrayRef({4, 3}));
  EXPECT_EQ(fusion(at::randn({4, 9, 24}), text, mask).sizes(), at::IntArrayRef({4, 3}));
}

TEST(Fusion, PaddingDoesNotChangeTheAnswer) {
  at::manual_seed(1);
  FusionOptions options = small();
  options.layers = 2;
  CrossAttentionFusion fusion(options);
  const torch::NoGradGuard no_grad;
  const at::Tensor image = at::randn({2, 24});
  const at::Tensor text = at::randn({2, 3, 12});
  const at::Tensor longer = at::cat({text, at::full({2, 4, 12}, 100.0)}, 1);
  const at::Tensor mask = at::cat({at::ones({2, 3}), at::zeros({2, 4})}, 1);
  EXPECT_TRUE(
      at::allclose(fusion(image, text, at::ones({2, 3})), fusion(image, longer, mask), 1e-5, 1e-6));
}

TEST(Fusion, BothSidesAndAllParametersLearn) {
  at::manual_seed(1);
  CrossAttentionFusion fusion(small());
  const at::Tensor image = at::randn({2, 24}).requires_grad_();
  const at::Tensor text = at::randn({2, 3, 12}).requires_grad_();
  torch::nn::functional::cross_entropy(fusion(image, text, at::ones({2, 3})),
                                       at::tensor({0, 2}, at::kLong))
      .backward();
  EXPECT_GT(image.grad().abs().sum().item<double>(), 0);
  EXPECT_GT(text.grad().abs().sum().item<double>(), 0);
  for (const auto& entry : fusion->named_parameters()) {
    EXPECT_TRUE(entry.value().grad().defined()) << entry.key();
  }
}

TEST(Fusion, RefusesWhatDoesNotFitInWords) {
  CrossAttentionFusion fusion(FusionOptions{});
  try {
    fusion(at::zeros({2, 512}), at::zeros({2, 3, 768}), at::ones({2, 3}));
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("image projection takes features of width 2048 and got "
                                        "width 512"));
    EXPECT_THAT(error.what(), HasSubstr("fix: "));
  }
}

}  // namespace
}  // namespace lockstep::runtime
