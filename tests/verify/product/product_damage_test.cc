// product.json cut off at every byte and with every bit turned, and folders made to be slow: always
// an error or an answer, in time, and never a proof of what is not safe.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/trace_text.h"
#include "tests/verify/product/certificate_lines.h"
#include "tests/verify/product/python_checker.h"
#include "tests/verify/product/small_product.h"
#include "verify/certificates/certificate.h"
#include "verify/product/decide.h"

namespace lockstep::verify {
namespace {

using testing::Contains;
using testing::HasSubstr;

std::vector<trace::Run> runs_of(const SmallProduct& product) {
  std::vector<trace::Run> out;
  for (std::size_t h = 0; h < product.full_spec().histories.size(); ++h)
    out.push_back(run_from_text(product.texts(h)));
  return out;
}

// The recordings of `p` under a damaged description; nothing where the two do not fit.
std::optional<trace::Derivation> derivation_of(const SmallProduct& p, trace::ProductSpec spec) {
  std::vector<trace::Run> runs = runs_of(p);
  if (spec.histories.size() != runs.size()) return std::nullopt;
  Result<trace::Derivation> derivation =
      trace::make_derivation(std::move(spec), std::move(runs), "folder");
  if (!derivation) return std::nullopt;
  return std::move(*derivation);
}

TEST(ProductDamage, IsAnErrorOrAnAnswer) {
  SmallProduct p(2);
  p.condition("image", "A:w b:v w1");
  p.allow({1}, {2}, {"image"});
  p.spec.assumptions = {"one library"};
  p.spec.only_steps = 9;
  const std::string whole = trace::product_text(p.full_spec());
  ASSERT_TRUE(trace::parse_product(whole, "product.json"));
  int read = 0;
  int refused = 0;
  damage(whole, [&](const std::string& text) {
    Result<trace::ProductSpec> spec = trace::parse_product(text, "product.json");
    if (!spec) {
      EXPECT_THAT(spec.error().message, testing::Not(testing::IsEmpty()));
      ++refused;
      return;
    }
    const auto again = trace::parse_product(trace::product_text(*spec), "product.json");
    ASSERT_TRUE(again) << text << again.error().str();
    EXPECT_EQ(trace::product_text(*again), trace::product_text(*spec));
    ++read;
    const auto derivation = derivation_of(p, std::move(*spec));
    if (!derivation) return;
    const ProductModel model(*derivation);
    const ProductDecision decision = decide(model);
    const Result<std::string> certificate = write_certificate(model, decision);
    EXPECT_EQ(static_cast<bool>(certificate), decision.verdict == ProductVerdict::safe) << text;
    if (certificate) {
      const CheckerSays said = check_certificate(*certificate, *derivation);
      EXPECT_TRUE(said) << said.why << text;
    }
  });
  EXPECT_GT(read, 100);
  EXPECT_GT(refused, 1000);
}

// The same where more than the first step counts: no damage leads to a history that is not there.
TEST(ProductDamage, OfHistoriesAndMemoryIsAnErrorOrAnAnswer) {
  for (const bool memory : {false, true}) {
    SmallProduct p(2);
    p.condition("image", "A:w");
    p.condition("text", "A:w");
    if (memory)
      p.after("text", "image", "A:w");
    else
      p.second("image", "text", "A:w");
    p.allow({1}, {1, 2}, {"text"});
    p.spec.only_steps = 9;
    int decided = 0;
    damage(trace::product_text(p.full_spec()), [&](const std::string& text) {
      Result<trace::ProductSpec> spec = trace::parse_product(text, "product.json");
      if (!spec) return;
      const auto derivation = derivation_of(p, std::move(*spec));
      if (!derivation) return;
      const ProductModel model(*derivation);
      const ProductDecision decision = decide(model);
      usual_steps(model);
      const bool certified = static_cast<bool>(write_certificate(model, decision));
      EXPECT_EQ(certified, memory && decision.verdict == ProductVerdict::safe &&
                               !derivation->spec.has_seconds())
          << text;
      ++decided;
    });
    EXPECT_GT(decided, 100);
  }
}

TEST(ProductDamage, AMemoryIsOfAKnownKindAndNotTooLarge) {
  SmallProduct p(2);
  for (int c = 0; c < 16; ++c) p.condition("c" + std::to_string(c), "");
  p.spec.looks_back = true;
  std::string text = trace::product_text(p.full_spec());
  const auto read = trace::parse_product(text, "product.json");
  ASSERT_TRUE(read) << read.error().str();
  EXPECT_TRUE(read->looks_back);
  const std::string known = "\"step-before\"";
  text.replace(text.find(known), known.size(), "\"two steps\"");
  EXPECT_THAT(trace::parse_product(text, "product.json").error().str(),
              HasSubstr("\"memory\" is neither"));
  p.condition("one more", "");
  EXPECT_THAT(trace::parse_product(trace::product_text(p.full_spec()), "f").error().str(),
              HasSubstr("more pairs than"));
}

TEST(ProductDamage, AllHistoriesGoOnToStepOneOrNone) {
  SmallProduct p(2);
  p.condition("image", "A:w");
  p.condition("text", "A:w");
  p.second("image", "text", "A:w");
  trace::ProductSpec spec = p.full_spec();
  const auto read = [&] { return trace::parse_product(trace::product_text(spec), "product.json"); };
  ASSERT_TRUE(read());
  EXPECT_EQ(read()->histories[1].second, spec.histories[1].second);
  EXPECT_EQ(trace::product_text(*read()), trace::product_text(spec));
  spec.looks_back = true;
  EXPECT_THAT(read().error().str(), HasSubstr("does not go with"));
  spec.looks_back = false;
  spec.histories[2].second.reset();
  EXPECT_THAT(read().error().str(), HasSubstr("some have none"));
}

TEST(ProductDamage, ADerivationIsOfItsOwnWorldAndWhole) {
  SmallProduct p(2);
  p.condition("image", "A:w");
  const auto refusal = [&](auto change) {
    trace::ProductSpec spec = p.full_spec();
    std::vector<trace::Run> runs = runs_of(p);
    change(spec, runs);
    const auto made = trace::make_derivation(std::move(spec), std::move(runs), "folder");
    return made ? "" : made.error().str();
  };
  using S = trace::ProductSpec;
  using R = std::vector<trace::Run>;
  EXPECT_EQ(refusal([](S&, R&) {}), "");
  EXPECT_THAT(refusal([](S& spec, R&) { spec.world_size = 3; }), HasSubstr("world of 2 ranks"));
  EXPECT_THAT(refusal([](S&, R& runs) { runs[0].ranks.pop_back(); }), HasSubstr("rank 1"));
  EXPECT_THAT(refusal([](S&, R& runs) { runs[0].ranks[1].end = trace::End::cut; }),
              HasSubstr("ends"));
  EXPECT_THAT(refusal([](S&, R& runs) { runs[0].ranks[0].dropped = 1; }), HasSubstr("lost"));
}

// So many rules and steps that asking each rank at each of them would take hours.
TEST(ProductDamage, TooManyCasesAreRefusedAtOnce) {
  SmallProduct p(4);
  for (int c = 0; c < 64; ++c)
    p.condition("c" + std::to_string(c), "", std::nullopt, std::to_string(c));
  for (std::int64_t step = 1; step <= 2000; ++step) p.allow({}, {step}, {"c0"});
  const trace::Derivation derivation = p.derivation();
  const ProductModel model(derivation);
  const ProductDecision decision = decide(model);
  EXPECT_EQ(decision.verdict, ProductVerdict::inconclusive);
  EXPECT_THAT(decision.why, Contains(HasSubstr("too many conditions, ranks, or steps")));
}

}  // namespace
}  // namespace lockstep::verify
