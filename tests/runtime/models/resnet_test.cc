// ResNet: torchvision's names, sizes and numbers.
#include "runtime/models/resnet.h"

#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/job/scenario.h"
#include "runtime/models/encoders.h"
#include "tests/runtime/models/wave.h"

namespace lockstep::runtime {
namespace {

using Json = nlohmann::json;

std::vector<std::string> names_of(const torch::nn::Module& model) {
  std::vector<std::string> names;
  for (const auto& entry : model.named_parameters()) names.push_back(entry.key());
  for (const auto& entry : model.named_buffers()) names.push_back(entry.key());
  return names;
}

std::int64_t parameters_in(const torch::nn::Module& model) {
  std::int64_t count = 0;
  for (const at::Tensor& parameter : model.parameters()) count += parameter.numel();
  return count;
}

TEST(ResNet, HasThePublishedSizes) {
  // torchvision's model table, which counts the classifier.
  EXPECT_EQ(parameters_in(*ResNet(ResNetOptions::resnet18())), 11'689'512 - (512 + 1) * 1000);
  EXPECT_EQ(ResNetOptions::resnet18().feature_width(), 512);
  EXPECT_EQ(ResNetOptions::resnet50().feature_width(), 2048);
  EXPECT_EQ(parameters_in(*ResNet(ResNetOptions::resnet_tiny())), 307'536);
}

TEST(ResNet, TheSmallOneTrainsAllOfItsParameters) {
  at::set_num_threads(1);
  at::manual_seed(1);
  ResNet model(ResNetOptions::resnet_tiny());
  const at::Tensor features = model(at::randn({4, 3, 32, 32}));
  EXPECT_EQ(features.sizes(), at::IntArrayRef({4, 128}));
  features.pow(2).mean().backward();
  for (const auto& entry : model->named_parameters()) {
    EXPECT_GT(entry.value().grad().abs().sum().item<double>(), 0) << entry.key();
  }
  EXPECT_THAT(names_of(*model), testing::IsSupersetOf({"layer1.0.conv1.weight", "bn1.running_mean",
                                                       "layer4.0.downsample.1.weight"}));
}

TEST(ResNet, EveryPictureSizeWillDo) {
  ResNet model(ResNetOptions::resnet_tiny());
  model->eval();
  for (const std::int64_t side : {1, 7, 33}) {
    EXPECT_EQ(model(at::zeros({1, 3, side, side + 2})).size(1), 128);
  }
}

TEST(ResNet, SaysWhichShapeItTakes) {
  ResNet model(ResNetOptions::resnet_tiny());
  EXPECT_THROW(model(at::zeros({1, 1, 8, 8})), std::invalid_argument);
  try {
    model(at::zeros({1, 8, 8, 3}));
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("move the channels to the second dimension"));
  }
}

// The rules of resnet50_reference.json. The module's names there begin with `prefix`.
void fill_by_formula(torch::nn::Module& model, const std::string& prefix = "") {
  const torch::NoGradGuard no_grad;
  const auto fill = [](const std::string& name, at::Tensor tensor, bool is_norm) {
    if (name.ends_with("num_batches_tracked")) return;
    const auto sum = ::crc32(0, reinterpret_cast<const unsigned char*>(name.data()),
                             static_cast<unsigned>(name.size()));
    const at::Tensor sine = at::sin(at::arange(tensor.numel(), at::kDouble) * 0.37 +
                                    0.11 * static_cast<double>(sum % 10007));
    at::Tensor values;
    if (name.ends_with("running_var")) {
      values = 1 + 0.25 * sine.abs();
    } else if (tensor.dim() > 1) {
      const double fan_in = static_cast<double>(tensor.numel() / tensor.size(0));
      values = sine * std::sqrt(2 / fan_in);
    } else if (is_norm && name.ends_with(".weight")) {
      values = 1 + 0.1 * sine;
    } else {
      values = 0.05 * sine;
    }
    tensor.copy_(values.reshape(tensor.sizes()));
  };
  for (const auto& entry : model.named_parameters()) {
    fill(prefix + entry.key(), entry.value(), prefix != "fc.");
  }
  for (const auto& entry : model.named_buffers()) fill(prefix + entry.key(), entry.value(), true);
}

TEST(ResNet, ResNet50ComputesWhatTorchvisionComputes) {
  std::ifstream file(LOCKSTEP_SOURCE_DIR "/../shared/data/models/resnet50_reference.json");
  if (!file) GTEST_SKIP() << "resnet50_reference.json is missing: no comparison with torchvision";
  const Json reference = Json::parse(file);
  ResNet model(ResNetOptions::resnet50());
  torch::nn::Linear classifier(2048, 1000);  // the reference's, after the encoder
  EXPECT_EQ(parameters_in(*model) + parameters_in(*classifier),
            reference["parameters"].get<std::int64_t>());
  auto names = names_of(*model);
  names.insert(names.end(), {"fc.weight", "fc.bias"});
  EXPECT_THAT(names, testing::UnorderedElementsAreArray(
                         reference["names"].get<std::vector<std::string>>()));
  fill_by_formula(*model);
  fill_by_formula(*classifier, "fc.");
  model->eval();
  const torch::NoGradGuard no_grad;
  const at::Tensor images = wave({2, 3, 224, 224}, 0.01, 0, 1);
  const at::Tensor features = model(images);
  const at::Tensor logits = classifier(features);
  double worst = 0;
  for (std::int64_t item = 0; item < 2; ++item) {
    const auto at_item = [&](const char* key) {
      return reference[key][static_cast<std::size_t>(item)];
    };
    const auto first = [&](const char* key, const at::Tensor& all) {
      const auto wanted = at_item(key).get<std::vector<double>>();
      worst = std::max(
          worst, largest_difference(
                     all[item].narrow(0, 0, static_cast<std::int64_t>(wanted.size())), wanted));
    };
    first("features_2048_first16", features);
    first("logits_first10", logits);
    EXPECT_NEAR(features[item].norm().item<double>(), at_item("features_norm"), 1e-3);
    EXPECT_NEAR(logits[item].norm().item<double>(), at_item("logits_norm"), 2e-3);
  }
  RecordProperty("largest_difference", std::to_string(worst));
  EXPECT_LT(worst, 5e-5);
}

TEST(Catalog, KnowsItsModelsAndWhatWasMeant) {
  for (const char* name : {"resnet-18", "resnet-tiny", "bert-tiny"}) {
    const auto model = build_model(name);
    ASSERT_TRUE(model);
    EXPECT_FALSE(parameters_of(*model->module).empty());
  }
  const auto schema = nlohmann::json::parse(scenario_schema());
  const auto& model = schema["properties"]["model"]["properties"];
  for (const char* kind : {"image", "text"}) {
    ASSERT_FALSE(model[kind]["enum"].empty());
    for (const auto& name : model[kind]["enum"]) {
      EXPECT_THAT(model_names(), testing::Contains(name.get<std::string>()));
    }
  }
  for (const auto& name : model["image"]["enum"]) EXPECT_GT(picture_side(name), 0);
  EXPECT_EQ(picture_side("resnet-50"), 224);
  EXPECT_EQ(picture_side("resnet-small"), 32);
  for (const auto& name : model["text"]["enum"]) EXPECT_GT(text_length(name, false), 0);
  EXPECT_EQ(text_length("bert-base", true), 128);
  EXPECT_EQ(text_length("bert-small", true), 10);
  EXPECT_EQ(text_length("bert-small", false), 32);
  EXPECT_THAT(build_model("resnet50").error().fix, testing::HasSubstr("resnet-50"));
}

}  // namespace
}  // namespace lockstep::runtime
