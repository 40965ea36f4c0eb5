// BertEncoder: Hugging Face's names, and the numbers of a pretrained one.
#include "runtime/models/bert.h"

#include <algorithm>
#include <fstream>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/environment.h"
#include "runtime/models/weights.h"
#include "tests/runtime/models/wave.h"

namespace lockstep::runtime {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

BertOptions tiny() {
  BertOptions options = BertOptions::bert_tiny();
  options.vocabulary = 50;
  options.positions = 12;
  return options;
}

struct Tokens {
  at::Tensor ids;
  at::Tensor mask;
};

// Two sentences of 6 and 3 tokens.
Tokens two_sentences() {
  return {at::arange(12, at::kLong).reshape({2, 6}),
          at::tensor({1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0}, at::kLong).reshape({2, 6})};
}

TEST(Bert, HasHuggingFacesNamesAndSizes) {
  BertEncoder model(tiny());
  std::vector<std::string> names;
  for (const auto& entry : model->named_parameters()) names.push_back(entry.key());
  EXPECT_EQ(names.size(), 5U + 2U * 16U + 2U);
  EXPECT_THAT(
      names,
      testing::IsSupersetOf(
          {"embeddings.word_embeddings.weight", "embeddings.position_embeddings.weight",
           "embeddings.token_type_embeddings.weight", "embeddings.LayerNorm.bias",
           "encoder.layer.0.attention.self.query.weight",
           "encoder.layer.1.attention.output.dense.bias",
           "encoder.layer.1.attention.output.LayerNorm.weight",
           "encoder.layer.1.intermediate.dense.weight", "encoder.layer.1.output.dense.weight",
           "encoder.layer.1.output.LayerNorm.bias", "pooler.dense.weight"}));
}

// What BERT calls pooled: tanh of a linear layer over the first token's state, [n, width]. The
// encoder only holds that layer.
at::Tensor pooled(BertEncoder& model, const at::Tensor& hidden) {
  const auto parameters = model->named_parameters();
  return at::tanh(at::linear(hidden.select(1, 0), parameters["pooler.dense.weight"],
                             parameters["pooler.dense.bias"]));
}

TEST(Bert, PaddingIsNotSeen) {
  at::set_num_threads(1);
  BertEncoder model(tiny());
  model->eval();
  const torch::NoGradGuard no_grad;
  const auto [ids, mask] = two_sentences();
  const at::Tensor hidden = model(ids, mask);
  EXPECT_EQ(hidden.sizes(), at::IntArrayRef({2, 6, 64}));
  const at::Tensor alone =
      model(ids.slice(0, 1, 2).slice(1, 0, 3), mask.slice(0, 1, 2).slice(1, 0, 3));
  EXPECT_TRUE(at::allclose(hidden[1].slice(0, 0, 3), alone[0], 1e-5, 1e-6));
  EXPECT_TRUE(at::allclose(mean_of_tokens(hidden, mask)[1], alone[0].mean(0), 1e-5, 1e-6));
  const at::Tensor nothing = at::zeros_like(mask);
  EXPECT_TRUE(model(ids, nothing).isfinite().all().item<bool>());
  EXPECT_TRUE(mean_of_tokens(hidden, nothing).eq(0).all().item<bool>());
}

TEST(Bert, TokenTypesAndPositionsMatter) {
  BertEncoder model(tiny());
  model->eval();
  const torch::NoGradGuard no_grad;
  const at::Tensor ids = at::full({1, 3}, 7, at::kLong);
  const at::Tensor mask = at::ones_like(ids);
  const at::Tensor hidden = model(ids, mask);
  EXPECT_FALSE(at::allclose(hidden[0][0], hidden[0][1]));
  EXPECT_FALSE(at::allclose(hidden, model(ids, mask, at::ones_like(ids))));
}

TEST(Bert, DropoutIsForTrainingAlone) {
  at::manual_seed(1);
  const auto [ids, mask] = two_sentences();
  const auto differs = [&ids = ids, &mask = mask](BertOptions options, bool training) {
    BertEncoder model(options);
    model->train(training);
    return !at::equal(model(ids, mask), model(ids, mask));
  };
  BertOptions none = tiny();
  none.dropout = none.attention_dropout = 0;
  EXPECT_TRUE(differs(tiny(), true));
  EXPECT_FALSE(differs(tiny(), false));
  EXPECT_FALSE(differs(none, true));
  none.attention_dropout = 0.1;
  EXPECT_TRUE(differs(none, true));
}

TEST(Bert, EveryParameterLearns) {
  at::set_num_threads(1);
  BertEncoder model(tiny());
  const auto [ids, mask] = two_sentences();
  const at::Tensor hidden = model(ids, mask);
  (pooled(model, hidden).sum() + mean_of_tokens(hidden, mask).pow(3).sum()).backward();
  for (const auto& entry : model->named_parameters()) {
    EXPECT_TRUE(entry.value().grad().defined()) << entry.key();
  }
}

TEST(Bert, MixedPrecisionMasksWithoutInfinity) {
  BertEncoder model(tiny());
  model->eval();
  model->to(at::kBFloat16);
  const torch::NoGradGuard no_grad;
  const auto [ids, mask] = two_sentences();
  EXPECT_TRUE(model(ids, at::zeros_like(mask)).isfinite().all().item<bool>());
}

TEST(Bert, SaysWhatDoesNotFit) {
  BertEncoder model(tiny());
  const auto problem = [&](const at::Tensor& ids, const at::Tensor& mask) -> std::string {
    try {
      model(ids, mask);
      return "fits";
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
  };
  const auto ids = [](std::int64_t n, std::int64_t t) { return at::zeros({n, t}, at::kLong); };
  EXPECT_EQ(problem(ids(2, 3), ids(2, 3)), "fits");
  EXPECT_THAT(problem(ids(2, 3), ids(3, 2)), HasSubstr("swapped"));
  EXPECT_THAT(problem(ids(2, 3), ids(2, 4)), HasSubstr("mask [2, 4]"));
  EXPECT_THAT(problem(ids(2, 13), ids(2, 13)), HasSubstr("12 positions and got 13 tokens"));
  EXPECT_THAT(problem(at::zeros({3}, at::kLong), ids(1, 3)), HasSubstr("[n, t]"));
}

std::string minilm_folder() { return cache_folder() + "/minilm-0.1.0"; }

TEST(Bert, MiniLmComputesWhatHuggingFaceComputes) {
  std::ifstream file(LOCKSTEP_SOURCE_DIR "/../shared/data/models/minilm_reference.json");
  if (!file) GTEST_SKIP() << "minilm_reference.json is missing";
  const auto weights = SafetensorsFile::open(minilm_folder() + "/model.safetensors");
  if (!weights) GTEST_SKIP() << "the weights are not there: run scripts/fetch-minilm";
  const auto options = load_bert_config(minilm_folder() + "/config.json");
  ASSERT_TRUE(options) << options.error().str();
  BertEncoder model(*options);
  const auto loaded = load_weights(*model, *weights, WeightNames::hugging_face());
  ASSERT_TRUE(loaded) << loaded.error().str();
  EXPECT_EQ(loaded->tensors, 103U);
  model->eval();
  const torch::NoGradGuard no_grad;
  // The ids of the reference's three texts by Hugging Face's tokenizer, padded with 0.
  const at::Tensor ids = at::tensor({101, 1037,  2417,  4418, 2187, 1997, 1037, 2630, 2675, 102,  //
                                     101, 2048,  6077,  2652, 1999, 1996, 4586, 1012, 102,  0,    //
                                     101, 27260, 15743, 7668, 102,  0,    0,    0,    0,    0},
                                    at::kLong)
                             .reshape({3, 10});
  const at::Tensor mask = ids.ne(0);
  const at::Tensor hidden = model(ids, mask);
  const at::Tensor mean = mean_of_tokens(hidden, mask);
  const Json cases = Json::parse(file)["cases"];
  double worst = 0;
  for (std::int64_t i = 0; i < 3; ++i) {
    const Json& wanted = cases[static_cast<std::size_t>(i)];
    const auto compare = [&](const char* key, const at::Tensor& all) {
      const auto values = wanted[key].get<std::vector<double>>();
      worst = std::max(
          worst, largest_difference(all[i].narrow(0, 0, static_cast<std::int64_t>(values.size())),
                                    values));
    };
    compare("cls_first16", hidden.select(1, 0));
    compare("pooler_first8", pooled(model, hidden));
    compare("mean_first8", mean);
    EXPECT_NEAR(mean[i].norm().item<double>(), wanted["mean_norm"], 1e-4);
  }
  RecordProperty("largest_difference", std::to_string(worst));
  EXPECT_LT(worst, 2e-5);
}

}  // namespace
}  // namespace lockstep::runtime
