// Plans that can hang because a rank has no items: how often, and what the verifier says.
#include "sim/multimodal/modality_check.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "reports/forecasts/multimodal.h"
#include "tests/sim/plan_text.h"

namespace lockstep::sim {
namespace {

using ::testing::HasSubstr;

// Four ranks, one micro-batch of one sample each; a sample has an image with probability 1/2.
MultimodalPlan plan_with(const std::string& encoder, const std::string& arrange = "drawn") {
  const auto plan = parse_multimodal_plan(
      "plan: 1\nname: hang\ncalibration: h100-cluster\ngpus: 4\nglobal_batch: 4\n"
      "llm: {model: {layers: 2, hidden: 256, heads: 4, vocabulary: 1000}, sequence: 512}\n"
      "encoders: [{name: vit, input: image, model: {layers: 2, hidden: 128, heads: 4}, " +
          encoder + "}]\n" +
          "data: {text: 100, image: {per_sample: {choice: [[0, 1], [1, 1]]}, size: 64}, "
          "sequences: padded, arrange: " +
          arrange + "}\n",
      "p.yaml", "");
  EXPECT_TRUE(plan) << plan.error().str();
  return plan ? *plan : MultimodalPlan{};
}

std::optional<ModalityDivergence> check(const MultimodalPlan& plan, std::int64_t steps = 4000) {
  const auto found = check_modalities(plan, steps);
  EXPECT_TRUE(found) << found.error().str();
  return found ? *found : std::nullopt;
}

// All ranks have an image, or none has: 2 of 16 steps do not hang.
TEST(ModalityCheck, GivesTheProbabilityOfAStep) {
  for (const char* encoder : {"zero: 3", "gradients: hooks"}) {
    const auto found = check(plan_with(encoder));
    ASSERT_TRUE(found) << encoder;
    EXPECT_NEAR(found->probability, 14.0 / 16, 0.02);
    EXPECT_LT(found->low, 14.0 / 16);
    EXPECT_GT(found->high, 14.0 / 16);
  }
}

TEST(ModalityCheck, WhatMakesTheSameCallsDoesNotHang) {
  for (const char* encoder :
       {"zero: 2", "zero: 3, without_items: dummy", "gradients: hooks, without_items: dummy",
        "gradients: hooks, frozen: true, projector: {frozen: true}"})
    EXPECT_FALSE(check(plan_with(encoder))) << encoder;
}

// By the dealt items themselves: whether some rank makes more calls than another in a step.
bool diverges_by_items(const MultimodalPlan& plan, std::uint64_t step) {
  const EncoderTower& tower = plan.encoders[0];
  const bool gathers = tower.layout.sharding == Sharding::zero3;
  const auto dealt = deal_step(plan, step);
  EXPECT_TRUE(dealt) << dealt.error().str();
  std::vector<std::int64_t> calls;
  for (const auto& unit : dealt->encoders[0])
    for (std::size_t rank = 0; rank < unit[0].size(); ++rank) {
      calls.push_back(0);
      for (std::size_t m = gathers ? 0 : unit.size() - 1; m < unit.size(); ++m)
        calls.back() += unit[m][rank].items > 0 ? 1 : 0;
    }
  return std::any_of(calls.begin(), calls.end(), [&](std::int64_t n) { return n != calls[0]; });
}

// Counting items is as good as dealing them, for plans checked one by one or together.
TEST(ModalityCheck, CountsAsTheItemsAreDealt) {
  constexpr std::int64_t kSteps = 40;
  std::vector<MultimodalPlan> plans;
  std::vector<std::string> names;
  for (const char* place : {"on: first_stage", "on: every_gpu", "on: own_gpus, gpus: 4"})
    for (const char* calls : {"zero: 3", "gradients: hooks"})
      for (const char* arrange : {"drawn", "reordered", "balanced"})
        for (const char* sequences : {"packed", "padded", "ragged"})
          for (const char* images : {"0.4", "3"}) {
            const std::string own = std::string_view(place).ends_with("4") ? "12" : "8";
            names.push_back(
                fmt::format("{} {} {} {} {}", place, calls, arrange, sequences, images));
            const auto plan = parse_multimodal_plan(
                fmt::format(
                    "plan: 1\nname: p\ncalibration: h100-cluster\ngpus: {}\ngpus_per_node: 4\n"
                    "global_batch: 16\n"
                    "llm: {{model: {{layers: 2, hidden: 256, heads: 4, vocabulary: 1000}}, "
                    "sequence: 512, tensor: 2}}\n"
                    "encoders: [{{name: vit, input: image, model: {{layers: 2, hidden: 128, heads: "
                    "4}}, {}, {}}}]\n"
                    "data: {{text: {{lognormal: [80, 1]}}, image: {{per_sample: {{poisson: {}}}, "
                    "size: {{lognormal: [64, 1]}}}}, sequences: {}, arrange: {}}}\n",
                    own, place, calls, images, sequences, arrange),
                "p.yaml", "");
            ASSERT_TRUE(plan) << names.back() << ": " << plan.error().str();
            plans.push_back(*plan);
          }
  const auto together = check_each(plans, kSteps);
  ModalityChecks checks;
  DealtBefore dealt;
  std::int64_t some = 0;
  for (std::size_t p = 0; p < plans.size(); ++p) {
    std::int64_t hang = 0, first = -1;
    for (std::int64_t step = 0; step < kSteps; ++step) {
      if (!diverges_by_items(plans[p], static_cast<std::uint64_t>(step))) continue;
      if (hang++ == 0) first = step;
    }
    const auto alone = check(plans[p], kSteps);
    const auto in_turn = checks.check(plans[p], kSteps);
    ASSERT_TRUE(in_turn) << in_turn.error().str();
    // With what was dealt for the plans before it, and then with what was dealt for itself.
    const auto after_others = check_modalities(plans[p], kSteps, true, &dealt);
    ASSERT_TRUE(after_others) << after_others.error().str();
    const auto again = check_each({plans[p]}, kSteps, dealt);
    for (const auto& found : {*together[p], alone, *in_turn, *after_others, *again[0]}) {
      EXPECT_EQ(found ? found->probability : 0, static_cast<double>(hang) / kSteps) << names[p];
      EXPECT_EQ(found ? static_cast<std::int64_t>(found->first) : -1, first) << names[p];
    }
    some += hang > 0 && hang < kSteps ? 1 : 0;
  }
  EXPECT_GT(some, 10);
}

// Two ranks, two micro-batches of one sample each, in which an image has probability 1/2, and with
// `ears` a sound. The encoders gather as they run.
MultimodalPlan two_ranks(const std::string& of_llm, bool ears = false, int seed = 1) {
  const std::string model = "model: {layers: 2, hidden: 128, heads: 4}, zero: 3}";
  const std::string items = "{per_sample: {choice: [[0, 1], [1, 1]]}, size: 64}";
  const auto plan = parse_multimodal_plan(
      "plan: 1\nname: two\ncalibration: h100-cluster\ngpus: 2\nglobal_batch: 4\n"
      "llm: {sequence: 512, " +
          of_llm + "}\nencoders:\n- {name: vit, input: image, " + model + "\n" +
          (ears ? "- {name: ears, input: audio, " + model + "\n" : "") +
          "data: {text: 100, image: " + items + (ears ? ", audio: " + items : "") +
          ", sequences: padded, seed: " + std::to_string(seed) + "}\n",
      "p.yaml", "");
  EXPECT_TRUE(plan) << plan.error().str();
  return plan ? *plan : MultimodalPlan{};
}
constexpr const char* kDense = "model: {layers: 2, hidden: 256, heads: 4, vocabulary: 1000}";
constexpr const char* kMixture =
    "model: {layers: 2, hidden: 256, heads: 4, vocabulary: 1000, experts: 4}";

// The calls of one encoder match by their number: 6 of 16 steps do not hang. With others between
// them, in which the ranks meet, both ranks must have the same micro-batches: 1 of 4, and with two
// encoders 1 of 16.
TEST(ModalityCheck, WhereRanksMeetInOtherCallsTheOrderCounts) {
  struct Case {
    std::string llm;
    bool ears;
    double hangs;
  };
  for (const Case& one : {Case{kDense, false, 10.0 / 16},
                          {std::string(kDense) + ", zero: 2", false, 10.0 / 16},
                          {std::string(kDense) + ", zero: 3", false, 3.0 / 4},
                          {kMixture, false, 10.0 / 16},
                          {std::string(kMixture) + ", expert: 2", false, 3.0 / 4},
                          {kDense, true, 15.0 / 16}}) {
    const auto found = check(two_ranks(one.llm, one.ears));
    ASSERT_TRUE(found) << one.llm;
    EXPECT_NEAR(found->probability, one.hangs, 0.025) << one.llm;
  }
}

TEST(ModalityCheck, TheVerifierSeesRanksThatWaitCrosswise) {
  const auto calibration = shipped_calibration("h100-cluster");
  int crosswise = 0;
  for (int seed = 1; seed <= 12; ++seed) {
    const MultimodalPlan plan = two_ranks(std::string(kDense) + ", zero: 3", false, seed);
    const auto forecast = forecast_towers(plan, *calibration);
    ASSERT_TRUE(forecast && forecast->divergence);
    const auto step = deal_step(plan, forecast->divergence->first);
    const auto count = [&](std::size_t rank) {
      const auto& micro_batches = step->encoders[0][rank];
      return micro_batches[0][0].items + micro_batches[1][0].items;
    };
    // One image each, in different micro-batches: as many calls.
    if (count(0) != count(1)) continue;
    ++crosswise;
    const auto result = reports::multimodal_result(*forecast);
    ASSERT_TRUE(result) << result.error().str();
    ASSERT_FALSE(result->hang->report.findings.empty());
    EXPECT_THAT(
        result->hang->report.findings.front().rule,
        testing::AnyOf(verify::RuleId::cross_group_deadlock, verify::RuleId::modality_divergence));
    EXPECT_THAT(reports::multimodal_text(*result), HasSubstr("they wait for each other"));
  }
  EXPECT_GT(crosswise, 0);
}

TEST(ModalityCheck, NamesTheRemediesThatHelp) {
  const auto found = check(plan_with("zero: 3"), 500);
  ASSERT_TRUE(found);
  double dummy = 1, zero = 1;
  for (const ModalityRemedy& remedy : found->remedies) {
    if (remedy.what.starts_with("without_items")) dummy = remedy.probability;
    if (remedy.what.starts_with("zero: 2")) zero = remedy.probability;
  }
  EXPECT_EQ(dummy, 0);
  EXPECT_EQ(zero, 0);
}

TEST(ModalityCheck, TheVerifierBlamesTheRanksWithoutImages) {
  const auto calibration = shipped_calibration("h100-cluster");
  for (const char* encoder : {"zero: 3", "gradients: hooks"}) {
    const auto forecast = forecast_towers(plan_with(encoder), *calibration);
    ASSERT_TRUE(forecast) << forecast.error().str();
    const auto result = reports::multimodal_result(*forecast);
    ASSERT_TRUE(result) << result.error().str();
    ASSERT_TRUE(result->hang);
    ASSERT_FALSE(result->hang->report.findings.empty());
    const verify::Finding& finding = result->hang->report.findings.front();
    EXPECT_EQ(finding.rule, verify::RuleId::modality_divergence) << encoder;
    // Exactly the ranks that encode nothing in that step.
    const auto step = deal_step(forecast->plan, forecast->divergence->first);
    std::vector<trace::Rank> without;
    for (std::int32_t rank = 0; rank < 4; ++rank)
      if (step->encoders[0][static_cast<std::size_t>(rank)][0][0].items == 0)
        without.emplace_back(rank);
    EXPECT_EQ(finding.culprits, without);
    EXPECT_THAT(reports::multimodal_text(*result),
                testing::AllOf(HasSubstr("this plan can hang"), HasSubstr("dummy")));
    for (const std::size_t width : {60U, 80U, 200U}) {
      std::istringstream lines(reports::multimodal_text(*result, width));
      for (std::string line; std::getline(lines, line);) EXPECT_LE(columns_of(line), width) << line;
    }
  }
}

}  // namespace
}  // namespace lockstep::sim
