#include "runtime/train/sampler.h"

#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/data/distributed_sampler.h"
#include "runtime/data/shapes.h"

namespace lockstep::runtime {
namespace {

using SamplerKind = Scenario::Data::Sampler;
using testing::ElementsAre;

constexpr int kRanks = 4;

Sampler sampler(const ShapesDataset& data, SamplerKind kind, int rank, int batch_size = 4) {
  return {data.has_images(), kind, batch_size, /*seed=*/1, {rank, kRanks}};
}

int images_in(const ShapesDataset& data, const std::vector<std::int64_t>& batch) {
  int images = 0;
  for (const std::int64_t i : batch) images += data.has_image(i) ? 1 : 0;
  return images;
}

TEST(RandomPermutation, IsTorchsRandperm) {
  // torch.randperm(10, generator=torch.Generator().manual_seed(0)), and with seed 1
  EXPECT_THAT(random_permutation(10, 0), ElementsAre(4, 1, 7, 5, 3, 9, 0, 8, 6, 2));
  EXPECT_THAT(random_permutation(10, 1), ElementsAre(5, 6, 1, 2, 0, 8, 9, 3, 7, 4));
}

TEST(RandomSampler, AnEpochGivesEachItemOnceOverTheRanks) {
  const ShapesDataset data(64, 0.0, 1);
  std::map<std::int64_t, int> times;
  for (int rank = 0; rank < kRanks; ++rank) {
    Sampler s = sampler(data, SamplerKind::random, rank);
    for (std::int64_t step = 0; step < 4; ++step) {
      for (const std::int64_t i : s.batch(step)) ++times[i];
    }
  }
  EXPECT_EQ(times.size(), 64U);
  for (const auto& [item, count] : times) EXPECT_EQ(count, 1) << "item " << item;
}

TEST(RandomSampler, TheNextEpochHasAnotherOrder) {
  const ShapesDataset data(64, 0.0, 1);
  Sampler s = sampler(data, SamplerKind::random, 0);
  const auto first = s.batch(0);
  EXPECT_NE(first, s.batch(4));
  EXPECT_EQ(first, s.batch(0));
}

TEST(RandomSampler, TooFewItemsAreRepeated) {
  const ShapesDataset data(3, 0.0, 1);
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(sampler(data, SamplerKind::random, rank).batch(0).size(), 4U);
  }
}

TEST(BalancedSampler, EveryBatchHasTheSameShareOfImages) {
  const ShapesDataset data(64, 0.5, 1);
  for (int rank = 0; rank < kRanks; ++rank) {
    Sampler s = sampler(data, SamplerKind::balanced, rank);
    for (std::int64_t step = 0; step < 8; ++step) EXPECT_EQ(images_in(data, s.batch(step)), 2);
  }
}

TEST(GroupedSampler, ABatchIsOfOneKindAndRanksMayDiffer) {
  const ShapesDataset data(64, 0.5, 1);
  std::vector<std::set<int>> kinds_of_step(4);
  for (int rank = 0; rank < kRanks; ++rank) {
    Sampler s = sampler(data, SamplerKind::grouped, rank);
    for (std::size_t step = 0; step < kinds_of_step.size(); ++step) {
      const int images = images_in(data, s.batch(static_cast<std::int64_t>(step)));
      EXPECT_THAT(images, testing::AnyOf(0, 4));
      kinds_of_step[step].insert(images);
    }
  }
  EXPECT_THAT(kinds_of_step, testing::Contains(testing::SizeIs(2)));
}

TEST(DealtSampler, InAStepAllRanksHaveOneKindAndAllItemsAreSeen) {
  const ShapesDataset data(72, 0.4, 1);
  // Batches of 4, padded to a multiple of 4 ranks: every rank has as many of each kind.
  std::vector<std::set<int>> kinds_of_step(6);
  std::set<std::int64_t> seen;
  for (int rank = 0; rank < kRanks; ++rank) {
    Sampler s = sampler(data, SamplerKind::dealt, rank);
    for (std::size_t step = 0; step < kinds_of_step.size(); ++step) {
      const auto& batch = s.batch(static_cast<std::int64_t>(step));
      kinds_of_step[step].insert(images_in(data, batch));
      seen.insert(batch.begin(), batch.end());
    }
  }
  EXPECT_THAT(kinds_of_step, testing::Each(testing::SizeIs(1)));
  EXPECT_THAT(kinds_of_step, testing::Contains(std::set<int>{0}));
  EXPECT_THAT(kinds_of_step, testing::Contains(std::set<int>{4}));
  // What does not fill a batch of its kind is dropped, as at the end of an epoch.
  EXPECT_GE(seen.size(), 72U - 2 * 3);
}

TEST(DealtSampler, AKindWithFewerBatchesThanRanksIsRepeated) {
  const ShapesDataset data(16, 0.25, 1);
  for (int rank = 0; rank < kRanks; ++rank) {
    Sampler s = sampler(data, SamplerKind::dealt, rank);
    for (std::int64_t step = 0; step < 2; ++step) EXPECT_EQ(s.batch(step).size(), 4U);
  }
}

}  // namespace
}  // namespace lockstep::runtime
