// Weights into modules by name: what is converted, what is refused, and that refusing changes
// nothing.
#include "runtime/models/weights.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/models/resnet.h"

namespace lockstep::runtime {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using Tensors = std::vector<std::pair<std::string, at::Tensor>>;

// All parameters and buffers of a module.
Tensors state_of(const torch::nn::Module& module) {
  Tensors all;
  for (const auto& entry : module.named_parameters()) all.emplace_back(entry.key(), entry.value());
  for (const auto& entry : module.named_buffers()) all.emplace_back(entry.key(), entry.value());
  return all;
}

class Weights : public testing::Test {
 protected:
  Weights()
      : path_((fs::path(testing::TempDir()) /
               ("weights_" + std::to_string(::getpid()) + ".safetensors"))
                  .string()) {}
  ~Weights() override { fs::remove(path_); }

  SafetensorsFile stored(const Tensors& tensors) const {
    std::vector<TensorToStore> list;
    for (const auto& [name, tensor] : tensors) {
      list.push_back(
          {name, *stored_type_of(tensor.scalar_type()), tensor.sizes().vec(),
           std::span(static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes())});
    }
    const Status written = write_safetensors(path_, list);
    EXPECT_TRUE(written) << written.error().str();
    return std::move(*SafetensorsFile::open(path_));
  }

  std::string problem(torch::nn::Module& module, const Tensors& tensors,
                      const WeightNames& names = {}) const {
    const auto loaded = load_weights(module, stored(tensors), names);
    return loaded ? std::string("loaded") : loaded.error().message;
  }

  std::string path_;
};

TEST_F(Weights, WhatWasSavedComesBack) {
  ResNet saved(ResNetOptions::resnet_tiny());
  saved(at::randn({2, 3, 32, 32}));  // moves the running statistics
  ResNet other(ResNetOptions::resnet_tiny());
  const auto loaded = load_weights(*other, stored(state_of(*saved)));
  ASSERT_TRUE(loaded) << loaded.error().str();
  EXPECT_EQ(loaded->converted, 0U);
  const auto expected = saved->named_parameters();
  for (const auto& entry : other->named_parameters()) {
    EXPECT_TRUE(at::equal(entry.value(), expected[entry.key()])) << entry.key();
  }
  const auto buffers = saved->named_buffers();
  for (const auto& entry : other->named_buffers()) {
    EXPECT_TRUE(at::equal(entry.value(), buffers[entry.key()])) << entry.key();
  }
}

TEST_F(Weights, AFileOfTheReferenceImplementationLoads) {
  // safetensors for Python, version 0: save({"weight": float16 [[1, 2], [3, 4]], "bias": [5, 6]})
  const std::string bytes =
      std::string("\x98\0\0\0\0\0\0\0", 8) +
      R"({"__metadata__":{"format":"pt"},"bias":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
      R"("weight":{"dtype":"F16","shape":[2,2],"data_offsets":[8,16]}}   )" +
      std::string("\0\0\xa0\x40\0\0\xc0\x40\0\x3c\0\x40\0\x42\0\x44", 16);
  std::ofstream(path_, std::ios::binary) << bytes;
  const auto file = SafetensorsFile::open(path_);
  ASSERT_TRUE(file) << file.error().str();
  torch::nn::Linear linear(2, 2);
  const auto loaded = load_weights(*linear, *file);
  ASSERT_TRUE(loaded) << loaded.error().str();
  EXPECT_EQ(loaded->converted, 1U);
  EXPECT_TRUE(at::equal(linear->weight, at::tensor({1.0F, 2.0F, 3.0F, 4.0F}).reshape({2, 2})));
  EXPECT_TRUE(at::equal(linear->bias, at::tensor({5.0F, 6.0F})));
}

TEST_F(Weights, FloatingPointTypesAreConverted) {
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16, at::kDouble, at::kFloat}) {
    torch::nn::Linear linear(2, 2);
    EXPECT_EQ(problem(*linear, {{"weight", at::full({2, 2}, 0.5, type)},
                                {"bias", at::full({2}, -2.0, type)}}),
              "loaded");
    EXPECT_EQ(linear->weight.scalar_type(), at::kFloat);
    EXPECT_TRUE(linear->weight.eq(0.5).all().item<bool>());
    EXPECT_TRUE(linear->bias.requires_grad());
  }
}

TEST_F(Weights, WhatDoesNotFitIsListedAndNothingIsChanged) {
  torch::nn::Linear linear(2, 2);
  const at::Tensor before = linear->weight.detach().clone();
  const at::Tensor square = at::zeros({2, 2});
  EXPECT_THAT(problem(*linear, {{"weight", square}}), HasSubstr("missing: bias"));
  EXPECT_THAT(problem(*linear, {{"weight", square}, {"bias", at::zeros({2})}, {"x", square}}),
              HasSubstr("unexpected: x"));
  EXPECT_THAT(problem(*linear, {{"weight", at::zeros({3, 2})}, {"bias", at::zeros({2})}}),
              HasSubstr("weight: F32 [3, 2] in the file, F32 [2, 2] in the model"));
  EXPECT_THAT(
      problem(*linear, {{"weight", at::zeros({2, 2}, at::kLong)}, {"bias", at::zeros({2})}}),
      HasSubstr("weight: I64 [2, 2] in the file, F32"));
  EXPECT_TRUE(at::equal(linear->weight, before));
}

TEST_F(Weights, OnlyTheFirstFewNamesAreListed) {
  ResNet model(ResNetOptions::resnet_tiny());
  const auto loaded = load_weights(*model, stored({{"module.conv1.weight", at::zeros({1})}}));
  ASSERT_FALSE(loaded);
  EXPECT_THAT(loaded.error().message, HasSubstr("more"));
  EXPECT_LT(loaded.error().message.size(), 400U);
  EXPECT_THAT(loaded.error().fix, HasSubstr("prefix"));
}

TEST_F(Weights, NamesAreMappedByPrefixAndEnd) {
  WeightNames names;
  names.prefixes = {{"bert.", ""}, {"", "other."}};
  names.suffixes = {{"gamma", "weight"}};
  names.ignored = {"other."};
  torch::nn::Linear linear(2, 2);
  const auto loaded = load_weights(*linear,
                                   stored({{"bert.gamma", at::ones({2, 2})},
                                           {"bert.bias", at::ones({2})},
                                           {"cls.bias", at::ones({2})}}),
                                   names);
  ASSERT_TRUE(loaded) << loaded.error().str();
  EXPECT_THAT(loaded->ignored, ElementsAre("cls.bias"));
  EXPECT_TRUE(linear->weight.eq(1).all().item<bool>());
}

TEST_F(Weights, TwoNamesThatBecomeOneAreRefused) {
  WeightNames names;
  names.prefixes = {{"a.", ""}};
  torch::nn::Linear linear(2, 2);
  const at::Tensor square = at::ones({2, 2});
  EXPECT_THAT(
      problem(*linear, {{"a.weight", square}, {"weight", square}, {"bias", at::ones({2})}}, names),
      HasSubstr("unexpected: "));
}

TEST_F(Weights, TorchvisionsClassifierAndOldFilesWithoutCountersLoad) {
  ResNet model(ResNetOptions::resnet_tiny());
  Tensors with_classes = state_of(*model);
  with_classes.insert(with_classes.end(),
                      {{"fc.weight", at::ones({10, 128})}, {"fc.bias", at::ones({10})}});
  const auto loaded = load_weights(*model, stored(with_classes), WeightNames::torchvision());
  ASSERT_TRUE(loaded) << loaded.error().str();
  EXPECT_THAT(loaded->ignored, testing::UnorderedElementsAre("fc.weight", "fc.bias"));
  torch::nn::BatchNorm2d norm(1);
  const at::Tensor one = at::ones({1});
  EXPECT_EQ(
      problem(*norm, {{"weight", one}, {"bias", one}, {"running_mean", one}, {"running_var", one}}),
      "loaded");
}

}  // namespace
}  // namespace lockstep::runtime
