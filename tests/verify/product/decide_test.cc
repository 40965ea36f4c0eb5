// Programs whose answer is known: safe, divergent, deadlocking, undecidable, and look-alikes.
#include "verify/product/decide.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/verify/product/small_product.h"
#include "tests/verify/program.h"

namespace lockstep::verify {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

struct Decided {
  explicit Decided(const SmallProduct& product)
      : derivation(product.derivation()), model(derivation), decision(decide(model)) {}
  trace::Derivation derivation;
  ProductModel model;
  ProductDecision decision;

  ProductVerdict verdict() const { return decision.verdict; }
  std::string why() const { return decision.why.empty() ? "" : decision.why.front(); }
};

std::ostream& operator<<(std::ostream& out, const Decided& d) {
  out << to_string(d.verdict());
  for (const std::string& reason : d.decision.why) out << "\n" << reason;
  if (d.decision.counterexample) out << "\n" << summary(d.decision.counterexample->report);
  return out;
}

TEST(Decide, TheSameCallsUnderAllConditionsAreSafe) {
  SmallProduct p(3);
  p.condition("image", "A:w B:v a:x w2");
  p.condition("text", "A:w B:v a:x w2");
  const Decided d(p);
  EXPECT_EQ(d.verdict(), ProductVerdict::safe) << d;
  EXPECT_TRUE(d.decision.one_order);
}

TEST(Decide, ACallThatOneConditionLeavesOutDiverges) {
  SmallProduct p(4);
  p.condition("image", "A:image A:text");
  p.condition("text", "A:text");
  const Decided d(p);
  ASSERT_EQ(d.verdict(), ProductVerdict::diverges) << d;
  const Counterexample& c = *d.decision.counterexample;
  EXPECT_THAT(c.differing, SizeIs(1));
  EXPECT_EQ(c.step, 0);
  EXPECT_THAT(c.what, ElementsAre("image"));
  EXPECT_THAT(c.assignment.steps, ElementsAre(0, 1));
  EXPECT_EQ(c.report.findings.front().rule, RuleId::modality_divergence) << d;
  EXPECT_EQ(c.report.findings.front().culprits, c.differing) << d;
}

TEST(Decide, AgreedConditionsMayDiffer) {
  SmallProduct p(2);
  p.condition("image", "A:image A:text");
  p.condition("text", "A:text");
  p.spec.choice = trace::ProductSpec::Choice::agreed;
  const Decided d(p);
  EXPECT_EQ(d.verdict(), ProductVerdict::safe) << d;
}

TEST(Decide, PhasesDoNotMix) {
  SmallProduct p(2);
  p.condition("image", "A:image A:text", std::nullopt, "with images");
  p.condition("both", "A:image A:text", std::nullopt, "with images");
  p.condition("text", "A:text", std::nullopt, "without");
  EXPECT_EQ(Decided(p).verdict(), ProductVerdict::safe);
  p.condition("both", "A:image");
  EXPECT_EQ(Decided(p).verdict(), ProductVerdict::diverges);
}

TEST(Decide, EqualSizesThatPairDifferentParametersDiverge) {
  SmallProduct p(3);
  p.condition("image", "A:w A:v");
  p.condition("text", "A:v A:w");
  const Decided d(p);
  ASSERT_EQ(d.verdict(), ProductVerdict::diverges) << d;
  EXPECT_EQ(d.decision.counterexample->first_difference, 0U);
}

TEST(Decide, WhereOneRankIsFixedTheOthersAreTheOnesThatDiffer) {
  SmallProduct p(3);
  p.condition("image", "A:image A:text");
  p.condition("text", "A:text");
  p.allow({1}, {}, {"text"});
  const Decided d(p);
  ASSERT_EQ(d.verdict(), ProductVerdict::diverges) << d;
  EXPECT_THAT(d.decision.counterexample->differing, SizeIs(1));
  EXPECT_NE(d.decision.counterexample->differing.front(), trace::Rank(1));
}

TEST(Decide, RanksThatAreFixedToOneConditionEachAreSafeWhereTheseAgree) {
  SmallProduct p(2);
  p.condition("image", "A:w A:v");
  p.condition("text", "A:w");
  p.allow({}, {}, {"image"});
  const Decided d(p);
  EXPECT_EQ(d.verdict(), ProductVerdict::safe) << d;
}

TEST(Decide, TwoFixedRanksThatDifferNeedNoChoice) {
  SmallProduct p(2);
  p.condition("image", "A:w A:v");
  p.condition("text", "A:w");
  p.allow({0}, {}, {"image"});
  p.allow({1}, {}, {"text"});
  const Decided d(p);
  EXPECT_EQ(d.verdict(), ProductVerdict::diverges) << d;
}

TEST(Decide, AGroupOfOneKeepsNobodyWaiting) {
  SmallProduct p(2);
  p.group("b", {0});
  p.condition("image", "A:w B:x", 0);
  p.condition("image", "A:w", 1);
  p.condition("text", "A:w");
  const Decided d(p);
  EXPECT_EQ(d.verdict(), ProductVerdict::safe) << d;
}

TEST(Decide, OppositeOrdersOfTwoGroupsMayDeadlock) {
  SmallProduct p(2);
  p.condition("image", "A B");
  p.condition("text", "B A");
  const Decided d(p);
  ASSERT_EQ(d.verdict(), ProductVerdict::may_deadlock) << d;
  EXPECT_THAT(d.decision.counterexample->differing, ElementsAre(trace::Rank(0), trace::Rank(1)));
  EXPECT_THAT(d.decision.counterexample->reason, SizeIs(2));
  EXPECT_THAT(summary(d.decision.counterexample->report), HasSubstr("error proven"));
}

TEST(Decide, OppositeOrdersWithoutBlockingAreHarmless) {
  SmallProduct p(2);
  p.condition("image", "a b w0 w1");
  p.condition("text", "b a w0 w1");
  const Decided d(p);
  EXPECT_EQ(d.verdict(), ProductVerdict::safe) << d;
  EXPECT_TRUE(d.decision.one_order);
}

TEST(Decide, OppositeOrdersWithoutBlockingMayLockKernelsOnNccl) {
  SmallProduct p(2);
  p.backend("nccl");
  p.condition("image", "a b w0 w1");
  p.condition("text", "b a w0 w1");
  const Decided d(p);
  EXPECT_EQ(d.verdict(), ProductVerdict::may_deadlock) << d;
}

TEST(Decide, OppositeOrdersOfOneRankAloneAreHarmless) {
  SmallProduct p(3);
  p.group("a", {0, 1});
  p.group("b", {0, 2});
  for (const char* name : {"image", "text"}) {
    p.condition(name, "A", 1);
    p.condition(name, "B", 2);
  }
  p.condition("image", "A B", 0);
  p.condition("text", "B A", 0);
  const Decided d(p);
  EXPECT_EQ(d.verdict(), ProductVerdict::safe) << d;
  EXPECT_FALSE(d.decision.one_order);
}

TEST(Decide, ThreeRanksInACycleOfThreeGroups) {
  SmallProduct p(3);
  p.group("a", {0, 1});
  p.group("b", {1, 2});
  p.group("c", {0, 2});
  p.condition("image", "A C", 0);
  p.condition("image", "B A", 1);
  p.condition("image", "B C", 2);
  p.condition("text", "A C", 0);
  p.condition("text", "B A", 1);
  p.condition("text", "C B", 2);
  const Decided d(p);
  ASSERT_EQ(d.verdict(), ProductVerdict::may_deadlock) << d;
  EXPECT_THAT(d.decision.counterexample->differing, SizeIs(3));
}

TEST(Decide, MessagesInStepAreSafe) {
  SmallProduct p(2);
  for (const char* name : {"image", "text"}) {
    p.condition(name, "S1:x:8 R1:y:4", 0);
    p.condition(name, "R0:x:8 S0:y:4", 1);
  }
  const Decided d(p);
  EXPECT_EQ(d.verdict(), ProductVerdict::safe) << d;
}

TEST(Decide, AMessageOfAnotherSizeDiverges) {
  SmallProduct p(2);
  p.condition("image", "S1:x:8", 0);
  p.condition("image", "R0:x:8", 1);
  p.condition("text", "S1:x:4", 0);
  p.condition("text", "R0:x:8", 1);
  const Decided d(p);
  ASSERT_EQ(d.verdict(), ProductVerdict::diverges) << d;
  EXPECT_THAT(summary(d.decision.counterexample->report), HasSubstr("p2p"));
}

TEST(Decide, SendsThatWaitForEachOtherMayDeadlock) {
  SmallProduct p(2);
  p.condition("image", "S1 R1", 0);
  p.condition("image", "R0 S0", 1);
  p.condition("text", "S1 R1", 0);
  p.condition("text", "S0 R0", 1);
  const Decided d(p);
  ASSERT_EQ(d.verdict(), ProductVerdict::may_deadlock) << d;
}

TEST(Decide, TheFirstStepMayDecideLaterOnes) {
  SmallProduct p(2);
  p.condition("image", "A:w A:v");
  p.condition("text", "A:w A:v");
  // The order of buckets follows the first step.
  p.later("text", "image", "A:v A:w");
  p.later("text", "text", "A:v A:w");
  const Decided free(p);
  ASSERT_EQ(free.verdict(), ProductVerdict::diverges) << free;
  EXPECT_EQ(free.decision.counterexample->step, 1);
  p.allow({}, {0}, {"image"});
  EXPECT_EQ(Decided(p).verdict(), ProductVerdict::safe) << Decided(p);
}

TEST(Decide, AStepThatIsNamedMayDivergeAlone) {
  SmallProduct p(2);
  p.condition("image", "A:w");
  p.condition("text", "A:v");
  p.allow({}, {5}, {"image", "text"});
  p.allow({}, {}, {"image"});
  const Decided d(p);
  ASSERT_EQ(d.verdict(), ProductVerdict::diverges) << d;
  EXPECT_EQ(d.decision.counterexample->step, 5);
  EXPECT_THAT(d.decision.counterexample->assignment.steps, ElementsAre(0, 1, 2, 3, 4, 5, 6));
  p.spec.only_steps = 5;
  EXPECT_EQ(Decided(p).verdict(), ProductVerdict::safe) << Decided(p);
}

TEST(Decide, ALateNamedStepLeavesOutWhatLiesBefore) {
  SmallProduct p(2);
  p.condition("image", "A:w");
  p.condition("text", "A:v");
  p.allow({}, {1'000'000'000'000}, {"image", "text"});
  p.allow({}, {}, {"image"});
  const Decided d(p);
  ASSERT_EQ(d.verdict(), ProductVerdict::diverges) << d;
  EXPECT_THAT(d.decision.counterexample->assignment.steps,
              ElementsAre(0, 1'000'000'000'000, 1'000'000'000'001));
}

TEST(Decide, StartAndEndCountToo) {
  SmallProduct p(2);
  p.condition("image", "A:w");
  p.start("A:init", 0);
  const Decided start(p);
  ASSERT_EQ(start.verdict(), ProductVerdict::diverges) << start;
  EXPECT_EQ(start.decision.counterexample->where, Counterexample::Where::start);
  p.start("A:init", 1);
  EXPECT_EQ(Decided(p).verdict(), ProductVerdict::safe);
  p.end("A:bye", 1);
  const Decided end(p);
  ASSERT_EQ(end.verdict(), ProductVerdict::diverges) << end;
  EXPECT_EQ(end.decision.counterexample->where, Counterexample::Where::end);
}

TEST(Decide, AnExceptionIsAWayToEnd) {
  SmallProduct p(2);
  p.condition("image", "A:w A:v");
  p.condition("text", "A:w A:v !");
  p.spec.choice = trace::ProductSpec::Choice::agreed;
  const Decided d(p);
  ASSERT_EQ(d.verdict(), ProductVerdict::raises) << d;
  EXPECT_EQ(d.decision.counterexample->step, 0);
  EXPECT_THAT(summary(d.decision.counterexample->report), HasSubstr("rank-exception"));
  p.allow({}, {}, {"image"});
  EXPECT_EQ(Decided(p).verdict(), ProductVerdict::inconclusive);
}

TEST(Decide, ADivergenceBeforeTheExceptionIsTheCause) {
  SmallProduct p(2);
  p.condition("image", "A:w A:v");
  p.condition("text", "A:w");
  p.later("text", "image", "!");  // refuses to go on after an unused parameter
  const Decided d(p);
  ASSERT_EQ(d.verdict(), ProductVerdict::diverges) << d;
  EXPECT_EQ(d.decision.counterexample->step, 0);
}

TEST(Decide, WhatDependsOnMoreThanTheConditionIsInconclusive) {
  SmallProduct p(2);
  p.condition("image", "A:w");
  trace::Derivation d = p.derivation();
  d.spec.steps = condition_ids({0, 0});
  std::vector<std::string> programs(
      2,
      "group a 0,1; all_reduce g=a n=4 step=0; all_reduce g=a n=4 step=1; "
      "all_reduce g=a n=8 step=2; clean");
  d.runs[0] = program(programs, false);
  const ProductModel model(d);
  const ProductDecision decision = decide(model);
  EXPECT_EQ(decision.verdict, ProductVerdict::inconclusive);
  EXPECT_THAT(decision.why, Contains(HasSubstr("more than its condition")));
}

// Two steps of text in a row are the fault, and a single one is none.
TEST(Decide, AStepThatLooksBackIsShownWithTheOneBefore) {
  SmallProduct p(3);
  p.condition("image", "A:w");
  p.condition("text", "A:w");
  p.after("text", "text", "A:w A:w", 1);
  p.after("text", "text", "A:w");
  p.allow({}, {0}, {"image"});
  const Decided d(p);
  ASSERT_EQ(d.verdict(), ProductVerdict::diverges) << d;
  EXPECT_EQ(d.decision.counterexample->step, 2);
  EXPECT_THAT(d.decision.counterexample->differing, ElementsAre(trace::Rank(1)));
  const Assignment& shown = d.decision.counterexample->assignment;
  ASSERT_THAT(shown.steps, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(shown.options[1][1].condition, ConditionId(1));
  EXPECT_EQ(shown.options[2][1].condition, ConditionId(1));
  // Rank 1 has text late, and steps that are alike are left out.
  constexpr std::int64_t kLate = 1'000'000;
  p.spec.allowed.clear();
  p.allow({1}, {kLate, kLate + 1}, {"text"});
  p.allow({}, {}, {"image"});
  const Decided late(p);
  ASSERT_EQ(late.verdict(), ProductVerdict::diverges) << late;
  EXPECT_EQ(late.decision.counterexample->step, kLate + 1);
  EXPECT_THAT(late.decision.counterexample->assignment.steps,
              ElementsAre(0, kLate, kLate + 1, kLate + 2));
  EXPECT_EQ(late.decision.counterexample->assignment.options[1][1].condition, ConditionId(1));
  p.spec.allowed.front().steps = {kLate, kLate + 2};
  EXPECT_EQ(Decided(p).verdict(), ProductVerdict::safe);
}

TEST(Decide, APairOfConditionsSeenOnceIsInconclusive) {
  SmallProduct p(2);
  p.condition("image", "A:w");
  p.condition("text", "A:w");
  trace::Derivation d = p.derivation();
  d.spec.looks_back = true;  // no step comes after one of its own condition
  const ProductModel model(d);
  const ProductDecision decision = decide(model);
  EXPECT_EQ(decision.verdict, ProductVerdict::inconclusive);
  EXPECT_THAT(decision.why, Contains(HasSubstr("and another under")));
}

TEST(Decide, WhatDependsOnMoreThanTheStepBeforeIsInconclusive) {
  SmallProduct p(2);
  p.condition("image", "A:w");
  p.spec.looks_back = true;
  trace::Derivation d = p.derivation();
  d.spec.steps = condition_ids({0, 0, 0});
  d.runs[0] = program(
      std::vector<std::string>(2,
                               "group a 0,1; all_reduce g=a n=4 step=0; all_reduce g=a n=4 step=1; "
                               "all_reduce g=a n=4 step=2; all_reduce g=a n=8 step=3; clean"),
      false);
  const ProductModel model(d);
  EXPECT_THAT(decide(model).why, Contains(HasSubstr("that of the step before, and that of")));
}

// Step 1 is unlike later ones, as of a static graph; and it raises after a second step of text.
TEST(Decide, HistoriesMayGoOnToStepOne) {
  SmallProduct p(2);
  p.condition("image", "A:w");
  p.condition("text", "A:w");
  p.second("image", "image", "A:v");
  p.second("image", "text", "A:v");
  p.settled("image", "text", "image", "!");
  p.settled("image", "text", "text", "!");
  p.allow({}, {0}, {"image"});
  const Decided raises(p);
  ASSERT_EQ(raises.verdict(), ProductVerdict::raises) << raises;
  EXPECT_EQ(raises.decision.counterexample->step, 2);
  const Assignment& shown = raises.decision.counterexample->assignment;
  EXPECT_EQ(shown.options[1][0].condition, ConditionId(1));
  p.spec.allowed.clear();
  p.allow({}, {0, 1}, {"image"});
  EXPECT_EQ(Decided(p).verdict(), ProductVerdict::safe) << Decided(p);
  // Without the history that goes on so, nothing is known.
  trace::Derivation d = p.derivation();
  d.spec.allowed.clear();
  d.spec.histories.pop_back();
  d.runs.pop_back();
  const ProductModel model(d);
  EXPECT_THAT(decide(model).why,
              Contains(HasSubstr("step 0 may be under \"text\" and step 1 under \"text\"")));
}

TEST(Decide, AConditionSeenOnceIsInconclusive) {
  SmallProduct p(2);
  p.condition("image", "A:w");
  trace::Derivation d = p.derivation();
  d.spec.steps = condition_ids({0});
  std::vector<std::string> programs(
      2, "group a 0,1; all_reduce g=a n=4 step=0; all_reduce g=a n=4 step=1; clean");
  d.runs[0] = program(programs, false);
  const ProductModel model(d);
  EXPECT_EQ(decide(model).verdict, ProductVerdict::inconclusive);
  d.spec.only_steps = 1;  // then there is no later step
  const ProductModel short_model(d);
  EXPECT_EQ(decide(short_model).verdict, ProductVerdict::safe);
}

TEST(Decide, AFirstConditionWithoutHistoryIsInconclusive) {
  SmallProduct p(2);
  p.condition("image", "A:w");
  p.condition("text", "A:w");
  trace::Derivation d = p.derivation();
  d.spec.histories.pop_back();
  d.runs.pop_back();
  const ProductModel model(d);
  const ProductDecision decision = decide(model);
  EXPECT_EQ(decision.verdict, ProductVerdict::inconclusive);
  EXPECT_THAT(decision.why, ElementsAre(HasSubstr("no history starts with it")));
}

TEST(Decide, TooManyKindsOfStepsAreInconclusive) {
  SmallProduct p(1);
  p.spec.choice = trace::ProductSpec::Choice::agreed;
  for (int c = 0; c < 64; ++c) p.condition("c" + std::to_string(c), "");
  std::vector<std::int64_t> steps;
  for (std::int64_t s = 1; s <= 20; ++s) steps.push_back(s);
  p.allow({}, steps, {"c0"});
  for (int c = 1; c < 64; ++c)
    p.spec.allowed[0].conditions.emplace_back(static_cast<std::uint32_t>(c));
  const Decided d(p);
  EXPECT_EQ(d.verdict(), ProductVerdict::inconclusive);
  EXPECT_THAT(d.why(), HasSubstr("more than 65,536 kinds of steps"));
}

TEST(Decide, NoConditionForSomeRankIsInconclusive) {
  SmallProduct p(2);
  p.condition("image", "A:w", std::nullopt, "1");
  p.condition("text", "A:w", std::nullopt, "2");
  p.allow({0}, {3}, {"image"});
  p.allow({1}, {3}, {"text"});
  const Decided d(p);
  EXPECT_EQ(d.verdict(), ProductVerdict::inconclusive);
  EXPECT_THAT(d.why(), HasSubstr("step 3"));
}

TEST(Decide, DifferentMembersOfAGroupDiverge) {
  SmallProduct p(3);
  p.condition("image", "A:w");
  trace::Derivation d = p.derivation();
  d.runs[0] = program({"group a 0,1; all_reduce g=a n=4 step=0; clean",
                       "group a 0,1,2; all_reduce g=a n=4 step=0; clean",
                       "group a 0,1,2; all_reduce g=a n=4 step=0; clean"},
                      false);
  d.spec.steps.clear();
  d.spec.only_steps = 1;
  const ProductModel model(d);
  const ProductDecision decision = decide(model);
  ASSERT_EQ(decision.verdict, ProductVerdict::diverges);
  EXPECT_THAT(summary(decision.counterexample->report), HasSubstr("group-divergence"));
}

TEST(Decide, UnevenExchangesMustFit) {
  const auto judged = [](const std::string& of_rank_1) {
    SmallProduct p(2);
    p.condition("image", "");
    trace::Derivation d = p.derivation();
    d.spec.steps.clear();
    d.spec.only_steps = 1;
    d.runs[0] = program({"all_to_all_single in_splits=1,2 out_splits=1,3 step=0; clean",
                         "all_to_all_single " + of_rank_1 + " step=0; clean"},
                        false);
    const ProductModel model(d);
    return decide(model).verdict;
  };
  EXPECT_EQ(judged("in_splits=3,1 out_splits=2,1"), ProductVerdict::safe);
  EXPECT_EQ(judged("in_splits=3,1 out_splits=1,1"), ProductVerdict::diverges);
}

TEST(Decide, AReceiveFromAnySourceIsInconclusive) {
  SmallProduct p(2);
  p.condition("image", "");
  trace::Derivation d = p.derivation();
  d.spec.steps.clear();
  d.spec.only_steps = 1;
  d.runs[0] = program({"send n=4 peer=1 step=0; clean", "recv_any n=4 step=0; clean"}, false);
  const ProductModel model(d);
  const ProductDecision decision = decide(model);
  EXPECT_EQ(decision.verdict, ProductVerdict::inconclusive);
  EXPECT_THAT(decision.why, Contains(HasSubstr("any source")));
}

TEST(Decide, WaitsThatCrossStepsCloseNoCycle) {
  SmallProduct p(2);
  p.condition("image", "");
  trace::Derivation d = p.derivation();
  d.spec.steps = condition_ids({0, 0});
  const std::string groups = "group a 0,1; group b 0,1; ";
  const std::string rank =
      groups +
      "all_reduce g=a n=4 step=0 async; all_reduce g=b n=4 step=1; wait 0 open; "
      "all_reduce g=b n=4 step=2; clean";
  const std::string other =
      groups +
      "all_reduce g=a n=4 step=0; all_reduce g=b n=4 step=1; all_reduce g=b n=4 step=2; "
      "clean";
  d.runs[0] = program({rank, other}, false);
  const ProductModel model(d);
  EXPECT_EQ(decide(model).verdict, ProductVerdict::safe);
}

}  // namespace
}  // namespace lockstep::verify
