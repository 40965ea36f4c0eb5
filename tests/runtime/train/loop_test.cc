// The loop's parts that communicate, on two real ranks.
#include <algorithm>
#include <stdexcept>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/models/contrastive.h"
#include "runtime/remedies/remedy.h"
#include "runtime/strategies/strategy.h"
#include "runtime/train/precision.h"
#include "runtime/train/train_loop.h"
#include "tests/runtime/rank_job.h"
#include "tests/runtime/small_model.h"

namespace lockstep::runtime {
namespace {

using testing::Each;
using testing::ElementsAre;

// The largest difference between two models' gradients, where both have them.
double difference_under(const ContrastiveModel& a, const ContrastiveModel& b,
                        const char* prefix = "") {
  double most = 0;
  const NamedTensors of_b = trained_parameters(*b);
  std::size_t i = 0;
  for (const auto& [name, parameter] : trained_parameters(*a)) {
    const at::Tensor other = of_b[i++].second.grad();
    if (!name.starts_with(prefix) || !parameter.grad().defined() || !other.defined()) continue;
    most = std::max(most, (parameter.grad() - other).abs().max().item<double>());
  }
  return most;
}

void average(const ContrastiveModel& model, ProcessGroups& groups, Recorder& recorder) {
  Scenario::Strategy manual;
  manual.kind = Scenario::Strategy::Kind::manual;
  make_strategy(manual, {model, groups, recorder})->synchronise();
}

// --- global negatives ----------------------------------------------------------------------------

// The mean over two ranks against one process on both batches, with rows shared unevenly.
double error_of_global_negatives(ProcessGroups& groups, Recorder& recorder, bool with_gradient) {
  ContrastiveModel whole = seeded_model_in_eval();
  whole->losses(items(0, 8)).contrastive.backward();
  ContrastiveModel part = seeded_model_in_eval();
  FeatureGather gather(groups.world(), recorder, with_gradient);
  const std::int64_t rank = groups.who().rank;
  part->losses(items(4 * rank, 4), &gather).contrastive.backward();
  average(part, groups, recorder);
  return difference_under(part, whole);
}

TEST(GlobalNegatives, GiveTheGradientOfOneProcessOnTheWholeBatch) {
  const TempDir folder;
  const auto statuses = run_ranks(2, folder, [](ProcessGroups& groups, Recorder& recorder) {
    return error_of_global_negatives(groups, recorder, true) < 1e-5 ? 0 : 1;
  });
  EXPECT_THAT(statuses, Each(0));
}

TEST(GlobalNegatives, WithoutTheGradientOfTheGatherDoNot) {
  const TempDir folder;
  const auto statuses = run_ranks(2, folder, [](ProcessGroups& groups, Recorder& recorder) {
    return error_of_global_negatives(groups, recorder, false) > 1e-3 ? 0 : 1;
  });
  EXPECT_THAT(statuses, Each(0));
}

TEST(GlobalNegatives, RanksMayHaveDifferentNumbersOfImages) {
  const TempDir folder;
  const auto statuses = run_ranks(2, folder, [](ProcessGroups& groups, Recorder& recorder) {
    FeatureGather gather(groups.world(), recorder, true);
    const std::int64_t rank = groups.who().rank;
    const at::Tensor own = at::full({1 + 2 * rank, 2}, static_cast<double>(rank)).requires_grad_();
    const auto gathered = gather.gather(own, "x");
    gathered.all.sum().backward();
    const bool right = gathered.all.sizes() == at::IntArrayRef({4, 2}) && gathered.offset == rank &&
                       gathered.all[0][0].item<float>() == 0 &&
                       gathered.all[3][1].item<float>() == 1 &&
                       own.grad().equal(at::full_like(own, 2));  // both ranks used each row once
    return right ? 0 : 1;
  });
  EXPECT_THAT(statuses, Each(0));
}

// --- remedies ------------------------------------------------------------------------------------

TEST(PresenceVote, TakesEveryonesImagesWhereOneHasNone) {
  const TempDir folder;
  const auto statuses = run_ranks(2, folder, [](ProcessGroups& groups, Recorder& recorder) {
    const auto remedy = make_remedy({.kind = Scenario::Remedy::Kind::presence_vote},
                                    {seeded_model_in_eval(), groups, recorder});
    std::vector<Batch> mixed = {items(0, 4, groups.who().rank == 0)};
    remedy->before_step(mixed);
    std::vector<Batch> all = {items(0, 4)};
    remedy->before_step(all);
    return !mixed[0].has_image() && all[0].has_image() ? 0 : 1;
  });
  EXPECT_THAT(statuses, Each(0));
}

// A step in which the ranks in `with_images` have images.
ContrastiveModel step_with(const Scenario::Remedy& options, ProcessGroups& groups,
                           Recorder& recorder, bool rank_0, bool rank_1,
                           Fault fault = Fault::none) {
  ContrastiveModel model = seeded_model_in_eval();
  const auto remedy = make_remedy(
      options, {.model = model, .groups = groups, .recorder = recorder, .fault = fault});
  const int rank = groups.who().rank;
  std::vector<Batch> batches = {items(4 * rank, 4, rank == 0 ? rank_0 : rank_1)};
  remedy->before_step(batches);
  remedy->loss(batches[0]).backward();
  average(model, groups, recorder);
  remedy->after_sync();
  return model;
}

bool image_path_has_gradients(const ContrastiveModel& model) {
  for (const auto& [name, parameter] : trained_parameters(*model)) {
    if (name.starts_with("image.") && parameter.grad().defined()) return true;
  }
  return false;
}

using RemedyOptions = Scenario::Remedy;

TEST(DummyFill, AveragesOverTheWorldOrOverTheContributors) {
  const TempDir folder;
  const auto statuses = run_ranks(2, folder, [](ProcessGroups& groups, Recorder& recorder) {
    ContrastiveModel alone = seeded_model_in_eval();  // what rank 0 computes
    alone->losses(items(0, 4)).total.backward();
    const auto diluted =
        step_with({RemedyOptions::Kind::dummy_image, RemedyOptions::Average::world}, groups,
                  recorder, true, false);
    const auto right =
        step_with({RemedyOptions::Kind::dummy_image, RemedyOptions::Average::contributors}, groups,
                  recorder, true, false);
    const auto masked =
        step_with({RemedyOptions::Kind::gradient_mask, RemedyOptions::Average::contributors},
                  groups, recorder, true, false);
    const bool ok = difference_under(right, alone, "image") < 1e-6 &&
                    difference_under(masked, alone, "image") < 1e-6 &&
                    difference_under(diluted, alone, "image") > 1e-4;
    return ok ? 0 : 1;
  });
  EXPECT_THAT(statuses, Each(0));
}

TEST(GradientMask, LeavesNothingToDecayWhereNobodyHadImages) {
  const TempDir folder;
  const auto statuses = run_ranks(2, folder, [](ProcessGroups& groups, Recorder& recorder) {
    const auto masked =
        step_with({.kind = RemedyOptions::Kind::gradient_mask}, groups, recorder, false, false);
    const auto decayed = step_with({.kind = RemedyOptions::Kind::gradient_mask}, groups, recorder,
                                   false, false, Fault::mask_decayed);
    return !image_path_has_gradients(masked) && image_path_has_gradients(decayed) ? 0 : 1;
  });
  EXPECT_THAT(statuses, Each(0));
}

TEST(GradientMask, DropsWhatADummyGivesEvenWhereItIsNotANumber) {
  const TempDir folder;
  const auto statuses = run_ranks(2, folder, [](ProcessGroups& groups, Recorder& recorder) {
    ContrastiveModel model = seeded_model_in_eval();
    const auto remedy =
        make_remedy({.kind = RemedyOptions::Kind::gradient_mask}, {model, groups, recorder});
    {
      const at::NoGradGuard no_grad;
      for (auto& [name, parameter] : trained_parameters(*model)) {
        if (name == "image.out.weight") parameter.fill_(std::numeric_limits<float>::infinity());
      }
    }
    std::vector<Batch> batches = {items(0, 4, false)};
    remedy->before_step(batches);
    const at::Tensor loss = remedy->loss(batches[0]);
    loss.backward();
    bool finite = loss.isfinite().item<bool>();
    for (const auto& [name, parameter] : trained_parameters(*model)) {
      finite = finite && parameter.grad().isfinite().all().item<bool>();
    }
    return finite ? 0 : 1;
  });
  EXPECT_THAT(statuses, Each(0));
}

// --- precision -----------------------------------------------------------------------------------

// Whether each rank leaves the step out when rank 1 alone overflowed.
std::vector<ExitStatus> skips(bool agreed) {
  const TempDir folder;
  return run_ranks(2, folder, [&](ProcessGroups& groups, Recorder& recorder) {
    Scenario::Train train;
    train.precision = Scenario::Train::Precision::float16;
    train.loss_scale = {1024, 1};
    LossScaler scaler(train, groups.world(), recorder);
    at::Tensor parameter = at::zeros({2}).requires_grad_();
    const bool overflows = groups.who().rank == 1;
    parameter.mutable_grad() =
        at::full({2}, overflows ? std::numeric_limits<float>::infinity() : 1024.0F);
    using Overflow = LossScaler::Overflow;
    const bool skipped =
        scaler.unscale({{"x", parameter}}, agreed ? Overflow::on_any_rank : Overflow::on_this_rank);
    const double expected = skipped ? 512 : 2048;  // halves, or grows after one good step
    if (scaler.current() != expected) return 7;
    if (!overflows && parameter.grad()[0].item<float>() != 1) return 8;
    return skipped ? 1 : 0;
  });
}

TEST(LossScaler, AllRanksLeaveAStepOutOrEachDecidesAlone) {
  EXPECT_THAT(skips(true), ElementsAre(1, 1));
  EXPECT_THAT(skips(false), ElementsAre(0, 1));
}

// --- the loop ------------------------------------------------------------------------------------

Scenario small_loop(Scenario::Strategy::Kind kind) {
  Scenario s;
  s.data.items = 64;
  s.strategy.kind = kind;
  s.train.steps = 3;
  s.train.batch_size = 4;
  return s;
}

TEST(TrainLoop, DdpAndManualSyncAgreeWithAccumulationClippingAndASchedule) {
  std::vector<std::vector<double>> both;
  for (const auto kind : {Scenario::Strategy::Kind::manual, Scenario::Strategy::Kind::ddp}) {
    Scenario s = small_loop(kind);
    s.strategy.broadcast_buffers = false;  // manual sync leaves them to each rank
    s.train.accumulation.steps = 2;
    s.train.clip.image = s.train.clip.text = 0.5;
    s.train.schedule = {1, Scenario::Train::Schedule::Decay::cosine};
    const TempDir folder;
    both.push_back(losses(s, folder));
  }
  ASSERT_EQ(both[0].size(), 3U);
  EXPECT_THAT(both[0], testing::Pointwise(testing::DoubleNear(1e-4), both[1]));
}

TEST(TrainLoop, OnlyTheLastMicroBatchReducesUnlessNoSyncIsOff) {
  for (const bool no_sync : {true, false}) {
    Scenario s = small_loop(Scenario::Strategy::Kind::ddp);
    s.strategy.no_sync = no_sync;
    s.train.accumulation.steps = 3;
    const TempDir folder;
    losses(s, folder);
    const Recorded run = recorded(folder.path(), 0);
    std::size_t buckets = 0;
    for (const std::string& call : run.calls(1)) buckets += call.find("#ddp.bucket.0") != call.npos;
    EXPECT_EQ(buckets, no_sync ? 1U : 3U);
    EXPECT_EQ(run.trace.data.at(1).indices.size(), 12U);
  }
}

TEST(TrainLoop, WithoutShardingOrWithBroadcastAllRanksReadTheSame) {
  for (const bool broadcast : {false, true}) {
    Scenario s = small_loop(Scenario::Strategy::Kind::manual);
    if (!broadcast) s.fault = Fault::unsharded_data;
    s.data.broadcast = broadcast;
    const TempDir folder;
    losses(s, folder);
    const auto indices = [&](int rank) {
      return recorded(folder.path(), rank).trace.data.at(1).indices;
    };
    EXPECT_EQ(indices(0), indices(1));
  }
}

TEST(TrainLoop, WithoutReshufflingEveryEpochHasOneOrder) {
  Scenario s = small_loop(Scenario::Strategy::Kind::manual);
  s.data.items = 16;  // two steps an epoch
  s.fault = Fault::no_reshuffle;
  const TempDir folder;
  losses(s, folder);
  const Recorded run = recorded(folder.path(), 0);
  EXPECT_EQ(run.trace.data.at(0).indices, run.trace.data.at(2).indices);
}

}  // namespace
}  // namespace lockstep::runtime
