// Batches distributed by cost, on real ranks.
#include "runtime/train/balancer.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/models/contrastive.h"
#include "runtime/strategies/strategy.h"
#include "runtime/train/train_loop.h"
#include "tests/runtime/rank_job.h"
#include "tests/runtime/small_model.h"

namespace lockstep::runtime {
namespace {

using testing::Each;
using testing::HasSubstr;

// The first items with an image, and the first without.
Batch half_text_batch(std::size_t images_from, std::size_t images, std::size_t texts_from,
                      std::size_t texts) {
  static const ShapesDataset data(64, 0.5, 1);
  std::vector<std::int64_t> with, without;
  for (std::int64_t i = 0; i < 64; ++i) (data.item(i).has_image ? with : without).push_back(i);
  std::vector<std::int64_t> indices;
  for (std::size_t i = 0; i < images; ++i) indices.push_back(with[images_from + i]);
  for (std::size_t i = 0; i < texts; ++i) indices.push_back(without[texts_from + i]);
  return make_batch(data, indices, nullptr);
}

double gradient_difference(const ContrastiveModel& a, const ContrastiveModel& b) {
  double most = 0;
  const NamedTensors of_b = trained_parameters(*b);
  std::size_t i = 0;
  for (const auto& [name, parameter] : trained_parameters(*a)) {
    const at::Tensor& other = of_b[i++].second.grad();
    most = std::max(most, (parameter.grad() - other).abs().max().item<double>());
  }
  return most;
}

// Against one process on the batches of both ranks, which have 3 + 1 and 1 + 5 items.
double error_of_gradient(ProcessGroups& groups, Recorder& recorder, bool weighed) {
  ContrastiveModel whole = seeded_model_in_eval();
  whole->losses(half_text_batch(0, 4, 0, 6)).total.backward();

  ContrastiveModel part = seeded_model_in_eval();
  std::vector<Batch> batches = {groups.who().rank == 0 ? half_text_batch(0, 3, 0, 1)
                                                       : half_text_batch(3, 1, 1, 5)};
  Balancer balancer(part, groups, recorder);
  balancer.before_step(batches, false);
  if (!weighed) batches[0].weights = {};
  FeatureGather gather(groups.world(), recorder, true);
  part->losses(batches[0], &gather).total.backward();
  Scenario::Strategy manual;
  manual.kind = Scenario::Strategy::Kind::manual;
  make_strategy(manual, {part, groups, recorder})->synchronise();
  return gradient_difference(part, whole);
}

TEST(Balancer, UnequalBatchesGiveTheGradientOfTheWholeBatch) {
  const TempDir folder;
  const auto statuses = run_ranks(2, folder, [](ProcessGroups& groups, Recorder& recorder) {
    if (!(error_of_gradient(groups, recorder, true) < 1e-5)) return 1;
    return error_of_gradient(groups, recorder, false) > 1e-3 ? 0 : 2;
  });
  EXPECT_THAT(statuses, Each(0));
}

TEST(Balancer, AllRanksFindTheSameCosts) {
  const TempDir folder;
  const auto statuses = run_ranks(2, folder, [](ProcessGroups& groups, Recorder& recorder) {
    Balancer balancer(seeded_model_in_eval(), groups, recorder);
    const auto rank = static_cast<std::size_t>(groups.who().rank);
    for (std::size_t step = 0; step < 8; ++step) {
      const std::size_t images = 1 + (step + rank) % 3;
      const std::size_t texts = (step * (1 + rank)) % 4;
      std::vector<Batch> batches = {half_text_batch(0, images, 0, texts)};
      balancer.before_step(batches, step >= 5);
      // 7 ms an image and 2 ms a text; the first step takes longer.
      const std::size_t ms = 7 * images + 2 * (images + texts) + (step == 0 ? 500 : 0);
      balancer.after_step(static_cast<trace::Nanos>(ms * 1'000'000));
    }
    const double idle = balancer.last_idle_share().value_or(-1);
    if (idle < 0 || idle >= 0.5) return 3;  // of two ranks, less than half
    const auto costs = balancer.costs();
    if (!costs || std::abs(costs->image - 7) > 0.1 || std::abs(costs->text - 2) > 0.1) return 1;
    const BalanceReport report = balancer.report();
    // Of 8 steps, the first is not counted and the last is not told yet.
    return report.fixed.steps == 4 && report.balanced.steps == 2 && report.fixed.idle_share > 0 ? 0
                                                                                                : 2;
  });
  EXPECT_THAT(statuses, Each(0));
}

Scenario balanced_job(Scenario::Data::Balance balance) {
  Scenario s;
  s.data.items = 64;
  s.data.text_only = 0.5;
  s.data.sampler = Scenario::Data::Sampler::grouped;
  s.data.balance = balance;
  s.data.balance_every = 3;
  s.strategy.kind = Scenario::Strategy::Kind::manual;
  s.remedy.kind = Scenario::Remedy::Kind::dummy_image;
  s.train.steps = 8;
  s.train.batch_size = 4;
  return s;
}

// The items of both ranks, sorted.
std::vector<std::int64_t> items_of_step(const TempDir& folder, std::size_t step) {
  std::vector<std::int64_t> all;
  for (const int rank : {0, 1}) {
    const Recorded run = recorded(folder.path(), rank);
    const auto& own = run.trace.data.at(step).indices;
    EXPECT_FALSE(own.empty());
    all.insert(all.end(), own.begin(), own.end());
  }
  std::sort(all.begin(), all.end());
  return all;
}

TEST(Balancing, TrainsOnTheSameItemsInEachStep) {
  const TempDir balanced;
  EXPECT_EQ(losses(balanced_job(Scenario::Data::Balance::cost), balanced).size(), 8U);
  const TempDir fixed;
  losses(balanced_job(Scenario::Data::Balance::none), fixed);
  for (std::size_t step = 0; step < 8; ++step) {
    EXPECT_EQ(items_of_step(balanced, step), items_of_step(fixed, step)) << "step " << step;
  }
  const Recorded run = recorded(balanced.path(), 1);
  EXPECT_THAT(run.calls(5).front(), HasSubstr("all_gather"));
  EXPECT_THAT(run.calls(5).front(), HasSubstr("float64[5] costs #balance.counts"));
}

}  // namespace
}  // namespace lockstep::runtime
