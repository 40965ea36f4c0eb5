// Fully sharded data parallel on real ranks: what it computes against DDP, what it communicates in
// which order, and what memory it leaves behind.
#include "runtime/strategies/fsdp.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/models/batch.h"
#include "runtime/models/parameters.h"
#include "runtime/remedies/remedy.h"
#include "runtime/train/optimization.h"
#include "tests/runtime/rank_job.h"
#include "tests/runtime/small_model.h"

namespace lockstep::runtime {
namespace {

using testing::Each;
using testing::ElementsAre;
using StrategyKind = Scenario::Strategy::Kind;

TEST(UseOrder, ForetellsWhatCameNextThePassBefore) {
  UseOrder order;
  EXPECT_EQ(order.restart(), std::nullopt);
  EXPECT_EQ(order.use(4), std::nullopt);
  EXPECT_EQ(order.use(2), std::nullopt);
  EXPECT_EQ(order.use(7), std::nullopt);
  EXPECT_EQ(order.restart(), 4U);
  EXPECT_EQ(order.use(4), 2U);
  EXPECT_EQ(order.use(9), std::nullopt);  // was not used
  EXPECT_EQ(order.use(7), std::nullopt);  // was the last
  EXPECT_EQ(order.restart(), 4U);
  EXPECT_EQ(order.use(4), 9U);
}

// --- what is computed ----------------------------------------------------------------------------

struct FsdpJob {
  Scenario::Strategy strategy;
  Scenario::Model::Checkpointing checkpointing = Scenario::Model::Checkpointing::none;
  Scenario::Train::Clip clip;
  int steps = 3;
  int micro_batches = 2;
  std::vector<std::string> freeze;
  Scenario::Remedy remedy;
  bool clips_locally = false;  // by the norm of the rank's own shards
  int text_only_rank = -1;     // in step 1
  // SGD: AdamW makes a whole step of the rounding where a gradient is 0.
  Scenario::Train::Optimizer optimizer = Scenario::Train::Optimizer::sgd;
};

Scenario::Strategy ddp() {
  Scenario::Strategy options;
  options.kind = StrategyKind::ddp;
  options.broadcast_buffers = false;
  return options;
}

Scenario::Strategy fsdp(bool prefetch = true, int shard_ranks = 0) {
  Scenario::Strategy options;
  options.kind = StrategyKind::fsdp;
  options.prefetch = prefetch;
  options.shard_ranks = shard_ranks;
  return options;
}

Scenario::Strategy by_parameter(int shard_ranks = 0) {
  Scenario::Strategy options = fsdp(/*prefetch=*/true, shard_ranks);
  options.shard_by = Scenario::Strategy::ShardBy::parameter;
  return options;
}

Batch batch_from(std::int64_t from, bool with_images) {
  static const ShapesDataset data(256, 0.0, 1);
  static const Scenario::Data::Rule text_only{{}, {}, {Modality::text}};
  std::vector<std::int64_t> indices;
  for (std::int64_t i = 0; i < 4; ++i) indices.push_back(from + i);
  return make_batch(data, indices, with_images ? nullptr : &text_only);
}

struct TrainedByFsdp {
  ContrastiveModel model;
  std::unique_ptr<Strategy> strategy;
  std::vector<float> losses;
};

// The train loop's own order of calls.
TrainedByFsdp train(const FsdpJob& job, ProcessGroups& groups, Recorder& recorder) {
  at::manual_seed(
      static_cast<std::uint64_t>(1 + groups.who().rank));  // the strategy has to make them equal
  TrainedByFsdp it{small_model(job.checkpointing), nullptr, {}};
  freeze(*it.model, job.freeze);
  it.strategy = make_strategy(job.strategy, {it.model, groups, recorder});
  const NamedTensors optimised = it.strategy->optimised(it.model);
  const auto remedy = make_remedy(job.remedy, {it.model, groups, recorder, nullptr, optimised});
  Scenario::Train options;
  options.optimizer = job.optimizer;
  if (job.optimizer == Scenario::Train::Optimizer::sgd) options.lr = 0.1;
  const auto optimizer = make_optimizer(options, optimised);
  it.strategy->start();
  const auto [rank, ranks] = groups.who();
  for (int step = 0; step < job.steps; ++step) {
    recorder.context().step = step;
    std::vector<Batch> batches;
    for (int i = 0; i < job.micro_batches; ++i) {
      const int first_item = (step * job.micro_batches + i) * ranks + rank;
      batches.push_back(batch_from(4L * first_item, step != 1 || rank != job.text_only_rank));
    }
    remedy->before_step(batches);
    optimizer->zero_grad();
    for (int i = 0; i < job.micro_batches; ++i) {
      const Pass pass = i + 1 == job.micro_batches ? Pass::last : Pass::accumulate;
      it.strategy->before_forward(pass);
      const at::Tensor loss = remedy->loss(batches[static_cast<std::size_t>(i)]);
      it.losses.push_back(loss.item<float>());
      it.strategy->backward(loss / job.micro_batches, pass);
    }
    it.strategy->synchronise();
    remedy->after_sync();
    std::function<double(double)> whole;
    if (!job.clips_locally) {
      whole = [&](double own) { return it.strategy->norm_squared(own); };
    }
    clip_gradients(job.clip, optimised, recorder, whole);
    optimizer->step();
  }
  recorder.context().step = trace::kNone;
  return it;
}

std::vector<float> values(const NamedTensors& tensors) {
  std::vector<float> all;
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor flat = tensor.detach().flatten().contiguous();
    all.insert(all.end(), flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel());
  }
  return all;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(0.0 + a[i] - b[i]));
  return most;
}

struct Difference {
  double losses, parameters;
};

// The difference between a job under fsdp and under DDP, as this rank sees it.
Difference from_ddp(FsdpJob job, ProcessGroups& groups, Recorder& recorder) {
  TrainedByFsdp sharded = train(job, groups, recorder);
  sharded.strategy->gather_everything();
  job.strategy = ddp();
  job.clips_locally = false;
  const TrainedByFsdp whole = train(job, groups, recorder);
  return {largest_difference(sharded.losses, whole.losses),
          largest_difference(values(named_parameters(*sharded.model)),
                             values(named_parameters(*whole.model)))};
}

struct Setting {
  const char* name;
  int ranks;
  Scenario::Strategy strategy;
};

class SameAsDdp : public testing::TestWithParam<Setting> {};

TEST_P(SameAsDdp, InLossesAndParametersWithClippingAndAccumulation) {
  const TempDir folder;
  const auto body = [](ProcessGroups& groups, Recorder& recorder) {
    FsdpJob job;
    job.strategy = GetParam().strategy;
    job.clip.image = job.clip.text = 0.5;
    const Difference difference = from_ddp(job, groups, recorder);
    return difference.losses < 1e-4 && difference.parameters < 1e-4 ? 0 : 1;
  };
  EXPECT_THAT(run_ranks(GetParam().ranks, folder, body), Each(0));
}

Scenario::Strategy encoder_unit(bool zeros = false) {
  Scenario::Strategy options = fsdp(/*prefetch=*/false);
  options.units = Scenario::Strategy::Units::image_encoder;
  options.reduce_scatter_unused_params = zeros;
  return options;
}

INSTANTIATE_TEST_SUITE_P(Fsdp, SameAsDdp,
                         testing::Values(Setting{"by_parameter", 3, by_parameter()},
                                         Setting{"hybrid_by_parameter", 4, by_parameter(2)},
                                         Setting{"prefetch", 2, fsdp(true)},
                                         Setting{"no_prefetch", 2, fsdp(false)},
                                         Setting{"padded", 3, fsdp(true)},
                                         Setting{"hybrid", 4, fsdp(true, 2)},
                                         Setting{"encoder_unit", 2, encoder_unit()}),
                         [](const auto& setting) { return std::string(setting.param.name); });

TEST(Fsdp, ShardsTheStateOfAdamW) {
  const TempDir folder;
  const auto body = [](ProcessGroups& groups, Recorder& recorder) {
    FsdpJob job;
    job.strategy = fsdp();
    job.optimizer = Scenario::Train::Optimizer::adamw;
    return from_ddp(job, groups, recorder).losses < 1e-4 ? 0 : 1;
  };
  EXPECT_THAT(run_ranks(2, folder, body), Each(0));
}

TEST(Fsdp, TrainsOnWithFrozenPartsAndADummyForATextOnlyRank) {
  const TempDir folder;
  const auto body = [](ProcessGroups& groups, Recorder& recorder) {
    FsdpJob job;
    job.strategy = fsdp();
    job.freeze = {"text.block1", "image.stem"};
    job.remedy = {Scenario::Remedy::Kind::gradient_mask, Scenario::Remedy::Average::contributors};
    job.text_only_rank = 1;
    const Difference difference = from_ddp(job, groups, recorder);
    return difference.losses < 1e-4 && difference.parameters < 1e-4 ? 0 : 1;
  };
  EXPECT_THAT(run_ranks(2, folder, body), Each(0));
}

TEST(Fsdp, ClippedByTheNormOfOwnShardsParametersDiffer) {
  const TempDir folder;
  const auto body = [](ProcessGroups& groups, Recorder& recorder) {
    FsdpJob job;
    job.strategy = fsdp();
    job.clip.image = job.clip.text = 0.5;
    job.clips_locally = true;
    return from_ddp(job, groups, recorder).parameters > 1e-4 ? 0 : 1;
  };
  EXPECT_THAT(run_ranks(2, folder, body), Each(0));
}

TEST(Fsdp, CheckpointingActivationsChangesNoNumber) {
  const TempDir folder;
  const auto body = [](ProcessGroups& groups, Recorder& recorder) {
    using Checkpointing = Scenario::Model::Checkpointing;
    for (const Scenario::Strategy& strategy : {fsdp(true), fsdp(false), encoder_unit()}) {
      FsdpJob job;
      job.strategy = strategy;
      job.remedy.kind = Scenario::Remedy::Kind::dummy_image;
      job.text_only_rank = 1;
      const TrainedByFsdp plain = train(job, groups, recorder);
      for (const Checkpointing what : {Checkpointing::blocks, Checkpointing::encoders}) {
        job.checkpointing = what;
        if (train(job, groups, recorder).losses != plain.losses) return 1;
      }
    }
    return 0;
  };
  EXPECT_THAT(run_ranks(2, folder, body), Each(0));
}

// A tensor without images gives zeros, as a blank image does.
TEST(Fsdp, AnEmptyImageTrainsAsADummyDoes) {
  const TempDir folder;
  const auto body = [](ProcessGroups& groups, Recorder& recorder) {
    FsdpJob job;
    job.strategy = encoder_unit();
    job.text_only_rank = 1;
    job.remedy.kind = Scenario::Remedy::Kind::dummy_image;
    const TrainedByFsdp dummy = train(job, groups, recorder);
    job.remedy.kind = Scenario::Remedy::Kind::empty_image;
    const TrainedByFsdp empty = train(job, groups, recorder);
    return dummy.losses == empty.losses ? 0 : 1;
  };
  EXPECT_THAT(run_ranks(2, folder, body), Each(0));
}

// --- what is kept --------------------------------------------------------------------------------

TEST(Fsdp, KeepsNothingWholeBetweenSteps) {
  const TempDir folder;
  const auto body = [](ProcessGroups& groups, Recorder& recorder) {
    FsdpJob job;
    job.strategy = fsdp();
    const TrainedByFsdp it = train(job, groups, recorder);
    for (const auto& [name, parameter] : named_parameters(*it.model)) {
      if (parameter.storage().nbytes() != 0 || parameter.grad().defined()) return 1;
    }
    it.strategy->gather_everything();
    for (const auto& [name, parameter] : named_parameters(*it.model)) {
      if (parameter.storage().nbytes() == 0) return 2;
    }
    return 0;
  };
  EXPECT_THAT(run_ranks(2, folder, body), Each(0));
}

TEST(Fsdp, GivesTheOptimizerOneShardForEachUnit) {
  const TempDir folder;
  const auto body = [](ProcessGroups& groups, Recorder& recorder) {
    const ContrastiveModel model = small_model();
    std::int64_t all = 0;
    for (const auto& [name, parameter] : named_parameters(*model)) all += parameter.numel();
    const auto strategy = make_strategy(fsdp(), {model, groups, recorder});
    std::vector<std::string> names;
    std::int64_t own = 0;
    for (const auto& [name, shard] : strategy->optimised(model)) {
      names.push_back(name);
      own += shard.numel();
      if (!shard.is_leaf() || !shard.requires_grad()) return 1;
      if (needs_images(name) != name.starts_with("image.")) return 2;
    }
    const std::vector<std::string> expected = {"image.block1", "image.block2", "text.block1",
                                               "text.block2",  "image.root",   "text.root"};
    const bool a_third = own >= all / 3 && own <= all / 3 + 2 * std::ssize(names);
    return names == expected && a_third ? 0 : 3;
  };
  EXPECT_THAT(run_ranks(3, folder, body), Each(0));
}

// A model alone that two strategies use in turn: the second finds no observer of the first.
TEST(Fsdp, LeavesTheModelUnobserved) {
  const TempDir folder;
  const auto body = [](ProcessGroups& groups, Recorder& recorder) {
    FsdpJob job;
    job.strategy = fsdp();
    job.steps = 1;
    TrainedByFsdp it = train(job, groups, recorder);
    it.strategy->gather_everything();
    it.strategy.reset();
    const at::Tensor loss = it.model->losses(batch_from(0, true)).total;
    return loss.isfinite().item<bool>() ? 0 : 1;
  };
  EXPECT_THAT(run_ranks(2, folder, body), Each(0));
}

// --- what is communicated ------------------------------------------------------------------------

// "gather image.block1" for each call of a step.
std::vector<std::string> in_short(const Recorded& run, std::int32_t step) {
  std::vector<std::string> all;
  for (const trace::Call& call : run.trace.calls) {
    if (call.step != step) continue;
    const std::string first = run.tables.names(call.what).front();
    const std::string tag = run.tables.str(call.tag);
    const auto end = first.find('.', first.find('.') + 1);
    all.push_back(tag.substr(tag.find('.') + 1) + " " + first.substr(0, end));
  }
  return all;
}

// Two image blocks and one text block, nothing else.
Recorded trained_blocks(
    const Scenario::Strategy& options, int ranks = 2, bool with_images = true,
    Scenario::Model::Checkpointing checkpointing = Scenario::Model::Checkpointing::none) {
  const TempDir folder;
  const auto body = [&](ProcessGroups& groups, Recorder& recorder) {
    FsdpJob job;
    job.strategy = options;
    job.checkpointing = checkpointing;
    job.steps = 2;
    job.micro_batches = 1;
    job.text_only_rank = with_images ? -1 : groups.who().rank;
    job.freeze = {"image.stem",  "image.out", "image_proj", "text.token", "text.position",
                  "text.block2", "text.norm", "text_proj.", "text_head",  "logit_scale"};
    train(job, groups, recorder);
    return 0;
  };
  EXPECT_THAT(run_ranks(ranks, folder, body), Each(0));
  return recorded(folder.path(), 0);
}

TEST(FsdpCalls, GatherBeforeUseAndReduceScatterAfterBackward) {
  const Recorded run = trained_blocks(fsdp(/*prefetch=*/false));
  for (const std::int32_t step : {0, 1}) {
    EXPECT_THAT(in_short(run, step),
                ElementsAre("gather text.block1", "gather image.block1", "gather image.block2",
                            "gather image.block2", "reduce_scatter image.block2",
                            "gather image.block1", "reduce_scatter image.block1",
                            "gather text.block1", "reduce_scatter text.block1"));
  }
  for (const trace::Call& call : run.trace.calls) EXPECT_FALSE(call.has(trace::kAsync));
}

TEST(FsdpCalls, PrefetchIssuesTheNextGatherBeforeABlockComputes) {
  const Recorded run = trained_blocks(fsdp(/*prefetch=*/true));
  EXPECT_THAT(in_short(run, 1),
              ElementsAre("gather text.block1", "gather image.block1", "gather image.block2",
                          "gather image.block2", "gather image.block1",
                          "reduce_scatter image.block2", "gather text.block1",
                          "reduce_scatter image.block1", "reduce_scatter text.block1"));
  for (const trace::Call& call : run.trace.calls) {
    const bool gather = run.tables.str(call.tag) == "fsdp.gather";
    EXPECT_EQ(call.has(trace::kAsync), gather && call.step == 1);
  }
}

// A block that runs again is whole: its own backward has gathered it. An encoder's blocks are
// gathered once more, before the backward of the last of them.
TEST(FsdpCalls, AnEncoderThatRunsAgainGathersItsBlocksAgain) {
  using Checkpointing = Scenario::Model::Checkpointing;
  const auto calls = [](Checkpointing what) {
    return in_short(trained_blocks(fsdp(/*prefetch=*/false), 2, true, what), 1);
  };
  EXPECT_EQ(calls(Checkpointing::blocks), calls(Checkpointing::none));
  EXPECT_THAT(
      calls(Checkpointing::encoders),
      ElementsAre("gather text.block1", "gather image.block1", "gather image.block2",
                  // the image encoder's output layer needs what it saw
                  "gather image.block1", "gather image.block2",
                  // its backward
                  "gather image.block2", "reduce_scatter image.block2", "gather image.block1",
                  "reduce_scatter image.block1",
                  // the text encoder
                  "gather text.block1", "gather text.block1", "reduce_scatter text.block1"));
}

TEST(FsdpCalls, SayWhatTheyCarry) {
  const Recorded run = trained_blocks(fsdp(/*prefetch=*/false));
  const std::string gather = run.calls(0).front();
  EXPECT_THAT(gather, testing::HasSubstr("all_gather_into_tensor world:"));
  EXPECT_THAT(gather, testing::HasSubstr("text.block1.norm1.weight,text.block1.norm1.bias,"));
  EXPECT_THAT(gather, testing::EndsWith("#fsdp.gather"));
  const std::string reduce = run.calls(0).back();
  EXPECT_THAT(reduce, testing::HasSubstr("reduce_scatter_tensor world:"));
  EXPECT_THAT(reduce, testing::HasSubstr(" sum text.block1.norm1.weight,"));
}

TEST(FsdpCalls, AHybridReducesOverTheCopiesToo) {
  const Recorded run = trained_blocks(fsdp(/*prefetch=*/false, /*shard_ranks=*/2), 4);
  std::vector<std::string> groups;
  for (const trace::Call& call : run.trace.calls) {
    if (call.step == 0) groups.push_back(run.tables.str(call.group));
  }
  EXPECT_THAT(groups, ElementsAre("shard0", "shard0", "shard0",        // forward
                                  "shard0", "shard0", "replicate0",    // image.block2
                                  "shard0", "shard0", "replicate0",    // image.block1
                                  "shard0", "shard0", "replicate0"));  // text.block1
}

TEST(FsdpCalls, WithoutImagesTheImageBlocksAreLeftOut) {
  const Recorded run = trained_blocks(fsdp(/*prefetch=*/false), 2, /*with_images=*/false);
  EXPECT_THAT(in_short(run, 1), ElementsAre("gather text.block1", "gather text.block1",
                                            "reduce_scatter text.block1"));
}

TEST(FsdpCalls, AnEncoderThatIsAUnitIsGatheredOnceAndReducedLast) {
  const Recorded run = trained_blocks(encoder_unit());
  EXPECT_THAT(in_short(run, 1),
              ElementsAre("gather text.block1", "gather image.block1", "gather text.block1",
                          "reduce_scatter text.block1", "reduce_scatter image.block1"));
}

// Zeros are for what ran. Without images the encoder does not run, and is still left out.
TEST(FsdpCalls, ZerosForUnusedParametersNeedAUnitThatRan) {
  const Recorded run = trained_blocks(encoder_unit(/*zeros=*/true), 2, /*with_images=*/false);
  EXPECT_THAT(in_short(run, 1), ElementsAre("gather text.block1", "gather text.block1",
                                            "reduce_scatter text.block1"));
}

// The encoder runs and its output is not used: the ranks' reductions are equal with zeros alone.
TEST(FsdpCalls, ZerosAreReducedForAUnitThatRanWithoutAGradient) {
  for (const bool zeros : {false, true}) {
    const TempDir folder;
    const auto body = [&](ProcessGroups& groups, Recorder& recorder) {
      const ContrastiveModel model = small_model();
      const auto strategy = make_strategy(encoder_unit(zeros), {model, groups, recorder});
      strategy->start();
      recorder.context().step = 0;
      strategy->before_forward(Pass::last);
      const Batch batch = batch_from(0, /*with_images=*/false);
      ContrastiveModel used = model;
      used->image_tower().encode(batch_from(0, true).images);
      strategy->backward(used->losses(batch).total, Pass::last);
      bool has_gradient = false;
      for (const auto& [name, shard] : strategy->optimised(model)) {
        if (name == "image.encoder") has_gradient = shard.grad().defined();
      }
      recorder.context().step = trace::kNone;
      return has_gradient == zeros ? 0 : 1;
    };
    EXPECT_THAT(run_ranks(2, folder, body), Each(0)) << zeros;
    const std::vector<std::string> calls = in_short(recorded(folder.path(), 0), 0);
    EXPECT_EQ(std::count(calls.begin(), calls.end(), "reduce_scatter image.stem"), zeros ? 1 : 0);
  }
}

// What the last reduction of a step in which rank 0 has pictures and rank 1 has videos carries, and
// whether rank 0's expert for frames has a gradient then.
TEST(FsdpCalls, ByParameterReduceWhatGotAGradientOrZeros) {
  using Expert = std::vector<std::string>;
  const Expert pictures = {"image_experts.pictures.weight", "image_experts.pictures.bias"};
  const Expert frames = {"image_experts.frames.weight", "image_experts.frames.bias"};
  Expert both = pictures;
  both.insert(both.end(), frames.begin(), frames.end());
  for (const bool zeros : {false, true}) {
    const TempDir folder;
    const auto body = [&](ProcessGroups& groups, Recorder& recorder) {
      Scenario::Model options;
      options.image_experts = true;
      const ContrastiveModel model(options, words_of_shapes());
      Scenario::Strategy sharding = by_parameter();
      sharding.reduce_scatter_unused_params = zeros;
      const auto strategy = make_strategy(sharding, {model, groups, recorder});
      strategy->start();
      recorder.context().step = 0;
      const int rank = groups.who().rank;
      Batch batch = batch_from(4L * rank, /*with_images=*/true);
      if (rank == 1) batch.videos = batch.images.size(0);
      strategy->before_forward(Pass::last);
      ContrastiveModel used = model;
      strategy->backward(used->losses(batch).total, Pass::last);
      recorder.context().step = trace::kNone;
      for (const auto& [name, shard] : strategy->optimised(model)) {
        const bool own = !name.starts_with("image_experts.") ||
                         name.starts_with(rank == 0 ? "image_experts.p" : "image_experts.f");
        if (shard.grad().defined() != (zeros || own)) return 1;
      }
      return 0;
    };
    EXPECT_THAT(run_ranks(2, folder, body), Each(0)) << zeros;
    for (const int rank : {0, 1}) {
      const Recorded run = recorded(folder.path(), rank);
      std::vector<Expert> reduced;
      for (const trace::Call& call : run.trace.calls) {
        const Expert what = run.tables.names(call.what);
        if (run.tables.str(call.tag).starts_with("fsdp.reduce_scatter") &&
            what.front().starts_with("image_experts."))
          reduced.push_back(what);
      }
      EXPECT_THAT(reduced, ElementsAre(zeros ? both : rank == 0 ? pictures : frames));
    }
  }
}

}  // namespace
}  // namespace lockstep::runtime
