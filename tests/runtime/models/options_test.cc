// Sizes of the text encoder and of the fusion: what is read, and what is refused in which words.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/models/bert_options.h"
#include "runtime/models/fusion_shapes.h"
#include "runtime/models/tensor_table.h"

namespace lockstep::runtime {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(BertConfig, IsReadFromHuggingFacesJson) {
  const auto options = parse_bert_config(R"({"model_type": "bert", "hidden_size": 384,
    "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536,
    "hidden_act": "gelu", "layer_norm_eps": 1e-12, "vocab_size": 30522,
    "hidden_dropout_prob": 0.2, "architectures": ["BertModel"]})");
  ASSERT_TRUE(options) << options.error().str();
  EXPECT_EQ(options->layers, 6);
  EXPECT_EQ(options->width, 384);
  EXPECT_EQ(options->feed_forward, 1536);
  EXPECT_EQ(options->positions, 512);  // not said: BERT-base's
  EXPECT_EQ(options->dropout, 0.2);
  EXPECT_EQ(options->attention_dropout, 0.1);
}

TEST(BertConfig, SaysWhatItCannotBe) {
  const auto problem = [](const std::string& json) {
    const auto options = parse_bert_config(json);
    return options ? std::string("accepted") : options.error().message;
  };
  EXPECT_THAT(problem("[]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(problem("{"), HasSubstr("not a JSON object"));
  EXPECT_THAT(problem(R"({"model_type": "gpt2"})"), HasSubstr("only \"bert\""));
  EXPECT_THAT(problem(R"({"hidden_act": "relu"})"), HasSubstr("'hidden_act' is \"relu\""));
  EXPECT_THAT(problem(R"({"is_decoder": true})"), HasSubstr("is_decoder"));
  EXPECT_THAT(problem(R"({"hidden_size": "768"})"),
              HasSubstr("'hidden_size' is not a whole number"));
  EXPECT_THAT(problem(R"({"hidden_size": -1})"), HasSubstr("not a whole number"));
  EXPECT_THAT(problem(R"({"hidden_size": 1e99})"), HasSubstr("not a whole number"));
  EXPECT_THAT(problem(R"({"hidden_size": 100})"), HasSubstr("cannot be shared by 12 heads"));
  EXPECT_THAT(problem(R"({"num_hidden_layers": 0})"), HasSubstr("cannot have 0 layers"));
  EXPECT_THAT(problem(R"({"num_hidden_layers": 9000000})"), HasSubstr("billion parameters"));
  EXPECT_THAT(problem(R"({"num_hidden_layers": 9000000, "hidden_size": 1,
                          "num_attention_heads": 1, "intermediate_size": 1})"),
              HasSubstr("cannot have 9000000 layers"));
  EXPECT_THAT(problem(R"({"hidden_dropout_prob": 1})"), HasSubstr("dropout"));
  EXPECT_THAT(problem(R"({"layer_norm_eps": "x"})"), HasSubstr("'layer_norm_eps' is not a number"));
  EXPECT_THAT(load_bert_config("/absent/config.json").error().str(), HasSubstr("/absent"));
}

TEST(FusionShapes, AWidthThatDoesNotFitNamesTheProjection) {
  const FusionOptions options;  // 2048 and 768
  EXPECT_TRUE(check_fusion_widths(options, 2048, 768));
  const Status image = check_fusion_widths(options, 512, 768);
  ASSERT_FALSE(image);
  EXPECT_EQ(image.error().message,
            "the fusion's image projection takes features of width 2048 and got width 512");
  EXPECT_THAT(image.error().fix, HasSubstr("image width to 512"));
  const Status text = check_fusion_widths(options, 2048, 384);
  ASSERT_FALSE(text);
  EXPECT_THAT(text.error().message, AllOf(HasSubstr("text projection"), HasSubstr("384")));
}

using Shape = std::vector<std::int64_t>;

std::string fits(const Shape& image, const Shape& text, const Shape& mask) {
  const Status status = check_fusion_shapes(FusionOptions(), image, text, mask);
  return status ? std::string("fits") : status.error().message;
}

TEST(FusionShapes, BatchAndSequenceSwappedAreNoticed) {
  EXPECT_EQ(fits({4, 2048}, {4, 9, 768}, {4, 9}), "fits");
  EXPECT_EQ(fits({4, 49, 2048}, {4, 9, 768}, {4, 9}), "fits");
  EXPECT_THAT(fits({4, 2048}, {9, 4, 768}, {4, 9}), HasSubstr("swapped"));
  EXPECT_THAT(fits({4, 2048}, {9, 4, 768}, {9, 4}), HasSubstr("swapped"));
  EXPECT_THAT(fits({49, 4, 2048}, {4, 9, 768}, {4, 9}), HasSubstr("swapped"));
  EXPECT_THAT(fits({4, 2048}, {3, 9, 768}, {3, 9}), HasSubstr("of 4 items, the text"));
}

TEST(FusionShapes, WhatIsNoBatchOfFeaturesIsRefused) {
  EXPECT_THAT(fits({4, 2048, 7, 7}, {4, 9, 768}, {4, 9}), HasSubstr("[n, regions, width]"));
  EXPECT_THAT(fits({4, 2048}, {4, 768}, {4, 9}), HasSubstr("takes text [n, t, width]"));
  EXPECT_THAT(fits({4, 2048}, {4, 9, 768}, {4, 8}), HasSubstr("does not fit its mask [4, 8]"));
  EXPECT_THAT(fits({4, 2048}, {4, 0, 768}, {4, 0}), HasSubstr("nothing to attend to"));
}

TEST(FusionOptions, SizesThatMakeNoFusionAreRefused) {
  EXPECT_TRUE(check_fusion_options({}));
  FusionOptions options;
  options.heads = 7;
  EXPECT_THAT(check_fusion_options(options).error().message, HasSubstr("7 heads"));
  options = {};
  options.outputs = 0;
  EXPECT_THAT(check_fusion_options(options).error().message, HasSubstr("number of outputs is 0"));
  options = {};
  options.dropout = 1;
  EXPECT_FALSE(check_fusion_options(options));
}

TEST(TensorTable, AddsUp) {
  EXPECT_EQ(tensor_table({{"a.weight", "F32", {2, 3}, 6, 24}, {"b", "I64", {}, 1, 8}}),
            "name      type  shape   values\n"
            "a.weight  F32   [2, 3]       6\n"
            "b         I64   []           1\n"
            "2 tensors, 7 values, 32 B\n");
}

}  // namespace
}  // namespace lockstep::runtime
