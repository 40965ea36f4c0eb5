// Classes of ranks: one trace stands for many.
#include <filesystem>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/support/temp_dir.h"
#include "tests/verify/product/python_checker.h"
#include "tests/verify/product/small_product.h"
#include "verify/certificates/certificate.h"

namespace lockstep::verify {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Written with traces of ranks 0 and 1 only, which stands for all others.
class RankClasses : public ::testing::Test {
 protected:
  static constexpr std::int32_t kRanks = 300;

  Result<trace::Derivation> load(SmallProduct& p,
                                 std::vector<trace::ProductSpec::RankClass> classes) {
    p.spec.classes = std::move(classes);
    p.write(folder_.path());
    for (std::int32_t r = 2; r < kRanks; ++r) {
      for (std::size_t h = 0; h < p.full_spec().histories.size(); ++h) {
        std::filesystem::remove(folder_.file("first-" + std::to_string(h) + "/rank_" +
                                             std::to_string(r) + ".trace.jsonl"));
      }
    }
    return trace::load_derivation(folder_.path());
  }
  static std::vector<trace::ProductSpec::RankClass> others_like_rank_1() {
    trace::ProductSpec::RankClass others{1, {}};
    for (std::int32_t r = 1; r < kRanks; ++r) others.ranks.push_back(r);
    return {{0, {0}}, others};
  }
  TempDir folder_;
};

TEST_F(RankClasses, WhatOneDoesAllDo) {
  SmallProduct p(kRanks);
  p.condition("image", "A:w B:v");
  p.condition("text", "A:w B:v");
  const Result<trace::Derivation> derivation = load(p, others_like_rank_1());
  ASSERT_TRUE(derivation) << derivation.error().str();
  const ProductModel model(*derivation);
  const ProductDecision decision = decide(model);
  EXPECT_EQ(decision.verdict, ProductVerdict::safe);
  const std::string text = write_certificate(model, decision).value();
  const auto classes = nlohmann::json::parse(text)["claims"]["product"]["classes"];
  EXPECT_EQ(classes.at(1).dump(), R"({"rank":1,"ranks":[[1,299]]})");
  const CheckerSays said = check_certificate(text, *derivation);
  EXPECT_TRUE(said) << said.why;
}

TEST_F(RankClasses, AnyOfThemMayBeTheOneThatDiffers) {
  SmallProduct p(kRanks);
  p.condition("image", "A:w B:v");
  p.condition("text", "A:w");
  p.allow({217}, {3}, {"image", "text"});
  p.allow({}, {}, {"image"});
  const Result<trace::Derivation> derivation = load(p, others_like_rank_1());
  ASSERT_TRUE(derivation) << derivation.error().str();
  const ProductDecision decision = decide(ProductModel(*derivation));
  ASSERT_EQ(decision.verdict, ProductVerdict::diverges);
  EXPECT_EQ(decision.counterexample->step, 3);
  EXPECT_THAT(decision.counterexample->differing, ElementsAre(trace::Rank(217)));
}

TEST_F(RankClasses, WhatStandsForOthersIsInTheirGroups) {
  SmallProduct p(kRanks);
  p.group("b", {0, 1});
  p.condition("image", "A:w B:v");
  const Result<trace::Derivation> derivation = load(p, others_like_rank_1());
  ASSERT_FALSE(derivation);
  EXPECT_THAT(derivation.error().message, HasSubstr("group b does not have them all"));
}

TEST_F(RankClasses, WhatStandsForOthersSendsNoMessages) {
  SmallProduct p(kRanks);
  p.condition("image", "A:w R0:x", 1);
  p.condition("image", "A:w S1:x", 0);
  const Result<trace::Derivation> derivation = load(p, others_like_rank_1());
  ASSERT_FALSE(derivation);
  EXPECT_THAT(derivation.error().message, HasSubstr("messages"));
}

TEST_F(RankClasses, EveryRankIsInOneClass) {
  const auto refused = [&](const std::string& classes) {
    const Result<trace::ProductSpec> spec = trace::parse_product(
        R"({"product": 1, "world_size": 4, "conditions": [{"name": "c"}],
            "histories": [{"first": "c", "folder": "f"}], "steps": ["c", "c"],
            "classes": )" +
            classes + "}",
        "product.json");
    return spec ? std::string("accepted") : spec.error().message;
  };
  EXPECT_EQ(refused(R"([{"rank": 0, "ranks": [[0, 3]]}])"), "accepted");
  EXPECT_THAT(refused(R"([{"rank": 0, "ranks": [[0, 2]]}])"), HasSubstr("leaves out a rank"));
  EXPECT_THAT(refused(R"([{"rank": 0, "ranks": [[0, 2], [2, 3]]}])"), HasSubstr("two classes"));
  EXPECT_THAT(refused(R"([{"rank": 1, "ranks": [[0, 3]]}])"), HasSubstr("not the first"));
  EXPECT_THAT(refused(R"([{"rank": 0, "ranks": [[0, 4]]}])"), HasSubstr("0 to 3"));
  EXPECT_THAT(refused(R"([{"rank": 0, "ranks": [[3, 0]]}])"), HasSubstr("3 to 3"));
  EXPECT_THAT(refused(R"([{"rank": 0, "ranks": [0]}])"), HasSubstr("[FROM, TO]"));
}

}  // namespace
}  // namespace lockstep::verify
