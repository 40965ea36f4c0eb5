// Costs learned from measured steps, and items split by them.
#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/train/cost_model.h"

namespace lockstep::runtime {
namespace {

using testing::ElementsAre;

using Split = std::vector<std::vector<std::size_t>>;

double longest(const std::vector<double>& costs, const Split& split) {
  double most = 0;
  for (const auto& items : split) {
    double sum = 0;
    for (const std::size_t item : items) sum += costs[item];
    most = std::max(most, sum);
  }
  return most;
}

// The shortest that the longest rank can be, by trying every split.
double best(const std::vector<double>& costs, std::size_t ranks) {
  std::size_t splits = 1;
  for (std::size_t i = 0; i < costs.size(); ++i) splits *= ranks;
  double least = std::accumulate(costs.begin(), costs.end(), 0.0);
  for (std::size_t code = 0; code < splits; ++code) {
    Split split(ranks);
    std::size_t rest = code;
    for (std::size_t item = 0; item < costs.size(); ++item, rest /= ranks) {
      split[rest % ranks].push_back(item);
    }
    least = std::min(least, longest(costs, split));
  }
  return least;
}

TEST(LongestFirst, SharesImagesAndTextsOut) {
  // Four items with an image (10), four without (1).
  EXPECT_THAT(longest_first(std::vector<double>{10, 10, 10, 10, 1, 1, 1, 1}, 2),
              ElementsAre(ElementsAre(0, 2, 4, 6), ElementsAre(1, 3, 5, 7)));
  // One image outweighs all texts.
  EXPECT_THAT(longest_first(std::vector<double>{1, 1, 10, 1}, 2),
              ElementsAre(ElementsAre(2), ElementsAre(0, 1, 3)));
}

TEST(LongestFirst, GivesEveryRankAnItemWhereThereAreEnough) {
  EXPECT_THAT(longest_first(std::vector<double>{0, 0, 0}, 3),
              ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2)));
  EXPECT_THAT(longest_first(std::vector<double>{5}, 2), ElementsAre(ElementsAre(0), ElementsAre()));
  EXPECT_THAT(longest_first({}, 1), ElementsAre(ElementsAre()));
}

TEST(LongestFirst, StaysWithinGrahamsBoundOfTheBestSplit) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const std::size_t ranks = 2 + random() % 2;
    std::vector<double> costs(1 + random() % 8);
    for (double& cost : costs) cost = static_cast<double>(1 + random() % 20);
    const double m = static_cast<double>(ranks);
    const double bound = 4.0 / 3 - 1 / (3 * m);
    const double found = longest(costs, longest_first(costs, static_cast<int>(ranks)));
    EXPECT_LE(found, bound * best(costs, ranks) + 1e-9) << "round " << round;
  }
}

TEST(LongestFirst, ReachesGrahamsBoundWhereItIsTight) {
  const std::vector<double> costs = {3, 3, 2, 2, 2};  // his example for two ranks: 7 instead of 6
  EXPECT_EQ(longest(costs, longest_first(costs, 2)), 7);
  EXPECT_EQ(best(costs, 2), 6);
}

TEST(IdleShare, IsWhatTheOthersWaitForTheLongest) {
  EXPECT_DOUBLE_EQ(idle_share(std::vector<double>{10, 5}), 0.25);
  EXPECT_DOUBLE_EQ(idle_share(std::vector<double>{4, 4, 4}), 0);
  EXPECT_DOUBLE_EQ(idle_share(std::vector<double>{0, 0}), 0);
  EXPECT_DOUBLE_EQ(idle_share({}), 0);
}

// Steps with 0 to 8 images and 4 to 12 texts.
std::vector<CostObservation> steps(int count, const ItemCosts& costs, double noise) {
  std::mt19937 random(11);
  std::normal_distribution<double> off(0, noise);
  std::vector<CostObservation> out;
  for (int i = 0; i < count; ++i) {
    const double images = static_cast<double>(random() % 9);
    const double texts = static_cast<double>(4 + random() % 9);
    out.push_back(
        {images, texts,
         costs.step + costs.image * images + costs.text * texts + (noise > 0 ? off(random) : 0)});
  }
  return out;
}

TEST(FitCosts, FindsCostsExactlyWhereNothingDisturbs) {
  const auto found = fit_costs(steps(30, {6, 1.5, 2}, 0));
  ASSERT_TRUE(found.has_value());
  EXPECT_NEAR(found->image, 6, 0.01);
  EXPECT_NEAR(found->text, 1.5, 0.01);
  EXPECT_NEAR(found->step, 2, 0.05);
}

TEST(FitCosts, FindsCostsInNoise) {
  const auto found = fit_costs(steps(400, {6, 1.5, 2}, 3));
  ASSERT_TRUE(found.has_value());
  EXPECT_NEAR(found->image, 6, 0.3);
  EXPECT_NEAR(found->text, 1.5, 0.3);
}

TEST(FitCosts, DisturbedStepsCountLittle) {
  auto observations = steps(100, {6, 1.5, 0}, 0.5);
  for (std::size_t i = 0; i < observations.size(); i += 10) observations[i].ms += 500;
  const auto found = fit_costs(observations);
  ASSERT_TRUE(found.has_value());
  EXPECT_NEAR(found->image, 6, 0.5);
  EXPECT_NEAR(found->text, 1.5, 0.5);
}

TEST(FitCosts, TextsBearTheCostThatFitsTextsAndStepsEqually) {
  std::vector<CostObservation> observations;
  for (int images = 0; images < 9; ++images)
    observations.push_back({1.0 * images, 8, 8.0 + images});
  const auto found = fit_costs(observations);
  ASSERT_TRUE(found.has_value());
  EXPECT_NEAR(found->image, 1, 0.01);
  EXPECT_NEAR(found->text, 1, 0.01);
  EXPECT_NEAR(found->step, 0, 0.05);
}

TEST(FitCosts, NoCostIsNegative) {
  // More texts, less time: what noise may say.
  const auto found = fit_costs(std::vector<CostObservation>{{4, 1, 50}, {4, 8, 40}, {2, 8, 20}});
  ASSERT_TRUE(found.has_value());
  EXPECT_GE(found->image, 0);
  EXPECT_GE(found->text, 0);
  EXPECT_GE(found->step, 0);
}

TEST(FitCosts, SaysNothingWithoutObservations) {
  EXPECT_FALSE(fit_costs({}).has_value());
  EXPECT_FALSE(fit_costs(std::vector<CostObservation>{{1, 1, 1}, {2, 2, 2}}).has_value());
  EXPECT_FALSE(fit_costs(std::vector<CostObservation>(5, {0, 0, 3})).has_value());
}

TEST(CostModel, FollowsCostsThatChange) {
  CostModel model;
  EXPECT_FALSE(model.costs().has_value());
  for (const auto& it : steps(600, {6, 1, 0}, 0)) model.add(it);
  model.fit();
  EXPECT_NEAR(model.costs()->image, 6, 0.01);
  for (const auto& it : steps(600, {2, 1, 0}, 0)) model.add(it);
  model.fit();
  EXPECT_NEAR(model.costs()->image, 2, 0.01);
}

}  // namespace
}  // namespace lockstep::runtime
