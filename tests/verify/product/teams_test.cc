// Teams: ranks that share a batch. product_oracle_test.cc holds the verdicts against enumeration.
#include <gmock/gmock.h>

#include "tests/support/temp_dir.h"
#include "tests/verify/product/small_product.h"
#include "verify/certificates/certificate.h"
#include "verify/product/decide.h"

namespace lockstep::verify {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Rank 0 sends to rank 1 what only a batch with images has; ranks 2 and 3 are another such pair.
// `reduced`: what the first ranks of the pairs then reduce under "text".
SmallProduct two_pairs(const std::string& reduced) {
  SmallProduct p(4);
  p.group("a", {0, 2});
  p.spec.together = {{0, 1}, {2, 3}};
  p.condition("image", "S1:x A:w", 0);
  p.condition("image", "R0:x", 1);
  p.condition("image", "S3:x A:w", 2);
  p.condition("image", "R2:x", 3);
  p.condition("text", reduced, 0);
  p.condition("text", "", 1);
  p.condition("text", reduced, 2);
  p.condition("text", "", 3);
  return p;
}

TEST(Teams, AnotherConditionIsAnotherOneForAllOfATeam) {
  const SmallProduct p = two_pairs("");
  const trace::Derivation derivation = p.derivation();
  const ProductDecision decision = decide(ProductModel(derivation));
  ASSERT_EQ(decision.verdict, ProductVerdict::diverges);
  EXPECT_THAT(decision.counterexample->differing, ElementsAre(trace::Rank(0), trace::Rank(1)));
  EXPECT_EQ(decision.counterexample->channel, "group a");
}

TEST(Teams, NoCertificateWhereWhatTheySendDependsOnTheBatch) {
  const SmallProduct p = two_pairs("A:w");
  const trace::Derivation derivation = p.derivation();
  const ProductModel model(derivation);
  const ProductDecision decision = decide(model);
  ASSERT_EQ(decision.verdict, ProductVerdict::safe);
  ASSERT_EQ(decision.why.size(), 1U);
  EXPECT_THAT(decision.why[0], HasSubstr("there is no certificate"));
  const auto none = write_certificate(model, decision);
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("depends on the batch"));
}

// `allowed` speaks of ranks: a team may meet what all of its ranks may.
TEST(Teams, ShareTheConditionsThatAllMembersMayBeIn) {
  SmallProduct p = two_pairs("");
  p.allow({1, 3}, {}, {"image"});
  const trace::Derivation derivation = p.derivation();
  EXPECT_EQ(decide(ProductModel(derivation)).verdict, ProductVerdict::safe);
}

TEST(Teams, AreReadAndWritten) {
  const auto read = [&](const std::string& keys) {
    return trace::parse_product(
        R"({"product": 1, "world_size": 4, "conditions": [{"name": "c"}],
            "histories": [{"first": "c", "folder": "f"}], "steps": ["c", "c"], )" +
            keys + "}",
        "product.json");
  };
  const auto refused = [&](const std::string& together) {
    const Result<trace::ProductSpec> spec = read("\"together\": " + together);
    return spec ? std::string("accepted") : spec.error().message;
  };
  const Result<trace::ProductSpec> spec = read(R"("together": [[1, 0], [2, 3]])");
  ASSERT_TRUE(spec) << spec.error().str();
  EXPECT_THAT(spec->together, ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  const Result<trace::ProductSpec> again =
      trace::parse_product(trace::product_text(*spec), "product.json");
  ASSERT_TRUE(again) << again.error().str();
  EXPECT_EQ(again->together, spec->together);
  EXPECT_EQ(refused("[]"), "accepted");
  EXPECT_THAT(refused("[[0, 1], [1, 2]]"), HasSubstr("rank 1 twice"));
  EXPECT_THAT(refused("[[0]]"), HasSubstr("fewer than two"));
  EXPECT_THAT(refused("[0, 1]"), HasSubstr("not a list of ranks"));
  EXPECT_THAT(refused("[[0, 4]]"), HasSubstr("0 to 3"));
  EXPECT_THAT(refused(R"([[0, 1]], "classes": [{"rank": 0, "ranks": [[0, 3]]}])"),
              HasSubstr("cannot both be given"));
}

}  // namespace
}  // namespace lockstep::verify
