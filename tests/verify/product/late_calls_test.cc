// Calls of step 0 that come among those of step 1: DDP arranges its buckets by the gradients of
// step 0 once the next batch is there, and that may have been sent by rank 0 (data.broadcast).
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/verify/product/python_checker.h"
#include "tests/verify/product/small_product.h"
#include "tests/verify/program.h"
#include "verify/certificates/certificate.h"
#include "verify/product/decide.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

using testing::Contains;
using testing::HasSubstr;

// What a rank does: step 0, and in each later step `early`, then `rest`; between these, in step 1,
// the late calls of step 0. Letters: a blocking all-reduce in that group.
struct Way {
  std::string first, early, late, rest;
};

std::string calls(const std::string& letters, int step) {
  std::string out;
  for (const char c : letters) {
    out += "; all_reduce redop=sum n=4 what=" + std::string(1, c) + " g=" + std::string(1, c) +
           " step=" + std::to_string(step);
  }
  return out;
}

std::string trace_of(const Way& way) {
  std::string out = "group a 0,1; group b 0,1; group c 0,1" + calls(way.first, 0) +
                    calls(way.early, 1) + calls(way.late, 0) + calls(way.rest, 1);
  for (int step = 2; step < 4; ++step) out += calls(way.early + way.rest, step);
  return out + "; clean";
}

// One condition, met in steps 0 to 3.
trace::Derivation derivation_of(const std::vector<std::string>& traces) {
  trace::Derivation out;
  out.spec.world_size = static_cast<std::int32_t>(traces.size());
  out.spec.conditions = {{"image", "", {}}};
  out.spec.histories = {{ConditionId(0), "first-0"}};
  out.spec.steps = condition_ids({0, 0, 0});
  out.runs.push_back(program(traces, false));
  return out;
}

ProductDecision decided(const trace::Derivation& derivation) {
  const ProductModel model(derivation);
  return decide(model);
}

TEST(LateCalls, StandInStepOneWhereTheyCame) {
  const std::string rank = trace_of({"a", "a", "b", "c"});
  const trace::Derivation derivation = derivation_of({rank, rank});
  const ProductModel model(derivation);
  const ProductDecision decision = decide(model);
  ASSERT_EQ(decision.verdict, ProductVerdict::safe) << decision.why.front();
  const Result<std::string> text = write_certificate(model, decision);
  ASSERT_TRUE(text);
  EXPECT_THAT(*text, HasSubstr("\"history 0 step 1\": {"));
  EXPECT_THAT(*text, HasSubstr("\"step 1 meet 0 after 0\": ["));
  EXPECT_THAT(*text, HasSubstr("\"step 2 and-others meet 0 after 0\": ["));
  const CheckerSays said = check_certificate(*text, derivation);
  EXPECT_TRUE(said) << said.why;
}

TEST(LateCalls, OnOneChannelWithStepOneKeepTheirPlace) {
  const std::string rank = trace_of({"a", "a", "a", "a"});
  EXPECT_EQ(decided(derivation_of({rank, rank})).verdict, ProductVerdict::safe);
}

TEST(LateCalls, InOppositeOrdersDeadlockInStepOne) {
  const ProductDecision decision =
      decided(derivation_of({trace_of({"", "ca", "b", ""}), trace_of({"", "c", "b", "a"})}));
  ASSERT_EQ(decision.verdict, ProductVerdict::may_deadlock);
  EXPECT_EQ(decision.counterexample->step, 1);
  EXPECT_THAT(summary(decision.counterexample->report), HasSubstr("proven"));
}

TEST(LateCalls, OfOneRankAloneDiverge) {
  const ProductDecision decision =
      decided(derivation_of({trace_of({"a", "a", "b", "c"}), trace_of({"a", "a", "", "c"})}));
  ASSERT_EQ(decision.verdict, ProductVerdict::diverges);
  EXPECT_EQ(decision.counterexample->step, 1);
}

TEST(LateCalls, InLaterStepsAreInconclusive) {
  const std::string rank = "group a 0,1" + calls("a", 0) + calls("a", 1) + calls("a", 2) +
                           calls("a", 1) + calls("a", 3) + "; clean";
  const ProductDecision decision = decided(derivation_of({rank, rank}));
  EXPECT_EQ(decision.verdict, ProductVerdict::inconclusive);
  EXPECT_THAT(decision.why, Contains(HasSubstr("the steps do not grow")));
}

TEST(LateCalls, DoNotHideThatStepOneIsNotLikeLaterOnes) {
  const std::string rank = "group a 0,1; group b 0,1" + calls("a", 0) + calls("a", 1) +
                           calls("b", 0) + calls("b", 1) + calls("aa", 2) + calls("aa", 3) +
                           "; clean";
  const ProductDecision decision = decided(derivation_of({rank, rank}));
  EXPECT_EQ(decision.verdict, ProductVerdict::inconclusive);
  EXPECT_THAT(decision.why, Contains(HasSubstr("more than its condition")));
}

// Where they come in step 1 was recorded under one condition only.
TEST(LateCalls, UnderAnotherConditionOfStepOneAreInconclusive) {
  const std::string rank = "group a 0,1" + calls("a", 0) + calls("a", 1) + calls("a", 0) +
                           calls("a", 1) + calls("a", 2) + calls("aa", 3) + calls("a", 4) +
                           "; clean";
  trace::Derivation derivation = derivation_of({rank, rank});
  derivation.spec.conditions.push_back({"text", "", {}});
  derivation.spec.choice = trace::ProductSpec::Choice::agreed;
  derivation.spec.steps = condition_ids({0, 1, 0, 1});
  derivation.spec.allowed.push_back({{}, {0}, condition_ids({0})});
  const ProductDecision decision = decided(derivation);
  EXPECT_EQ(decision.verdict, ProductVerdict::inconclusive);
  EXPECT_THAT(decision.why, Contains(HasSubstr("in step 1, among which calls of step 0 come")));
  derivation.spec.allowed.front().steps = {0, 1};
  EXPECT_EQ(decided(derivation).verdict, ProductVerdict::safe) << decided(derivation).why.front();
}

// The only assignment is what was recorded, so verify() can be asked.
TEST(LateCalls, AgreeWithWhatVerifyFinds) {
  std::mt19937 random(3);
  const auto letters = [&](std::size_t most, std::size_t least) {
    std::string out(least + random() % (most - least + 1), 'a');
    for (char& c : out) c = "abc"[random() % 3];
    return out;
  };
  int safe = 0;
  int faults = 0;
  for (int round = 0; round < 400; ++round) {
    const Way way{letters(1, 0), letters(2, 1), letters(2, 1), letters(2, 0)};
    Way other = way;
    if (round % 4 == 1) std::shuffle(other.late.begin(), other.late.end(), random);
    if (round % 4 == 2) other.late = letters(2, 1);
    if (round % 4 == 3) {  // the same calls, the late ones elsewhere among them
      const std::string step = way.early + way.rest;
      const std::size_t at = 1 + random() % step.size();
      other.early = step.substr(0, at);
      other.rest = step.substr(at);
    }
    const std::vector<std::string> traces = {trace_of(way), trace_of(other)};
    const bool fault = shows_divergence(verify(program(traces, false)));
    const ProductDecision decision = decided(derivation_of(traces));
    ASSERT_NE(decision.verdict, ProductVerdict::inconclusive) << traces[0] << "\n" << traces[1];
    ASSERT_EQ(decision.verdict == ProductVerdict::safe, !fault) << traces[0] << "\n" << traces[1];
    (fault ? faults : safe) += 1;
  }
  EXPECT_GT(safe, 50);
  EXPECT_GT(faults, 50);
}

}  // namespace
}  // namespace lockstep::verify
