// The pipeline on real ranks, against one process that holds the whole model.
#include "runtime/strategies/pipeline.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <tuple>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/faults/faults.h"
#include "runtime/train/result.h"
#include "runtime/train/train_loop.h"
#include "tests/runtime/rank_job.h"
#include "tests/runtime/small_model.h"

namespace lockstep::runtime {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using Schedule = Scenario::Strategy::Schedule;

constexpr double kTolerance = 1e-5;

Scenario::Strategy options(Schedule schedule, int stages = 2) {
  Scenario::Strategy pipeline;
  pipeline.stages = stages;
  pipeline.kind = Scenario::Strategy::Kind::pipeline;
  pipeline.schedule = schedule;
  return pipeline;
}

// Micro-batches of different sizes, one of them without images.
std::vector<Batch> mixed_batches(std::int64_t from, std::int64_t count) {
  std::vector<Batch> batches;
  for (std::int64_t m = 0; m < count; ++m) {
    batches.push_back(items(from + 4 * m, 2 + m % 3, m != 1));
  }
  return batches;
}

// A model with the gradients of the mean over all losses, and that mean.
struct Whole {
  ContrastiveModel model = seeded_model();
  double loss = 0;

  explicit Whole(const std::vector<Batch>& batches) {
    for (const Batch& batch : batches) {
      const at::Tensor part = model->losses(batch).total / static_cast<double>(batches.size());
      loss += part.item<double>();
      part.backward();
    }
  }
};

// A rank's stage after a step.
struct Stage {
  ContrastiveModel model = seeded_model();
  std::unique_ptr<Strategy> strategy;
  Strategy::OwnStep step;

  Stage(Schedule schedule, ProcessGroups& groups, Recorder& recorder,
        const std::vector<Batch>& batches, int stages = 2)
      : strategy(make_strategy(options(schedule, stages), {model, groups, recorder})) {
    strategy->start();
    step = strategy->run_step(batches).value();
    strategy->synchronise();
  }
};

// The largest difference between the gradients of the stage's own parameters and the whole model's;
// infinite where only one of the two has a gradient.
double stage_difference(const Stage& stage, const Whole& whole) {
  double most = 0;
  const NamedTensors others = named_parameters(*whole.model);
  std::size_t i = 0;
  for (const auto& [name, parameter] : named_parameters(*stage.model)) {
    const at::Tensor expected = others[i++].second.grad();
    if (!parameter.requires_grad()) continue;
    if (parameter.grad().defined() != expected.defined()) return HUGE_VAL;
    if (!expected.defined()) continue;
    most = std::max(most, (parameter.grad() - expected).abs().max().item<double>());
  }
  return most;
}

class Pipelines : public testing::TestWithParam<std::tuple<Schedule, int, int>> {
 protected:
  Schedule schedule() const { return std::get<0>(GetParam()); }
  int micro_batches() const { return std::get<1>(GetParam()); }
  int stages() const { return std::get<2>(GetParam()); }
};

TEST_P(Pipelines, GiveTheGradientsAndTheLossOfOneProcess) {
  const TempDir folder;
  const auto statuses = run_ranks(stages(), folder, [&](ProcessGroups& groups, Recorder& recorder) {
    const std::vector<Batch> batches = mixed_batches(0, micro_batches());
    const Stage stage(schedule(), groups, recorder, batches, stages());
    const Whole whole(batches);
    if (!(stage_difference(stage, whole) < kTolerance)) return 1;
    return std::abs(stage.step.loss - whole.loss) < kTolerance ? 0 : 2;
  });
  EXPECT_THAT(statuses, Each(0));
}

TEST_P(Pipelines, SideBySideGiveTheMeanOverTheReplicas) {
  const TempDir folder;
  const auto statuses =
      run_ranks(2 * stages(), folder, [&](ProcessGroups& groups, Recorder& recorder) {
        std::vector<Batch> all = mixed_batches(0, micro_batches());
        std::vector<Batch> second;
        for (int m = 0; m < micro_batches(); ++m) second.push_back(items(32 + 2 * m, 2, false));
        const std::vector<Batch> own = groups.who().rank < stages() ? all : second;
        const Stage stage(schedule(), groups, recorder, own, stages());
        all.insert(all.end(), second.begin(), second.end());
        return stage_difference(stage, Whole(all)) < kTolerance ? 0 : 1;
      });
  EXPECT_THAT(statuses, Each(0));
}

INSTANTIATE_TEST_SUITE_P(Schedules, Pipelines,
                         testing::Combine(testing::Values(Schedule::gpipe, Schedule::one_f_one_b),
                                          testing::Values(1, 2, 5), testing::Values(2)));
INSTANTIATE_TEST_SUITE_P(FourStages, Pipelines,
                         testing::Combine(testing::Values(Schedule::gpipe, Schedule::one_f_one_b),
                                          testing::Values(1, 4), testing::Values(4)));

TEST(Pipeline, FourStagesShareOutTheParameters) {
  const TempDir folder;
  const auto statuses = run_ranks(4, folder, [&](ProcessGroups& groups, Recorder& recorder) {
    const Stage stage(Schedule::gpipe, groups, recorder, {items(0, 2)}, 4);
    std::string names;
    for (const auto& [name, parameter] : trained_parameters(*stage.model)) {
      if (!parameter.grad().defined()) return 1;
      names += name + "\n";
    }
    folder.write("names" + std::to_string(groups.who().rank), names);
    return 0;
  });
  ASSERT_THAT(statuses, Each(0));
  std::vector<std::string> all;
  const std::vector<std::string> one_of = {"image.block1.conv1.weight", "image.out.weight",
                                           "text.token.weight", "logit_scale"};
  for (std::size_t rank = 0; rank < 4; ++rank) {
    std::istringstream in(TempDir::read(folder.file("names" + std::to_string(rank))));
    const std::vector<std::string> own{std::istream_iterator<std::string>(in), {}};
    EXPECT_THAT(own, testing::Contains(one_of[rank]));
    all.insert(all.end(), own.begin(), own.end());
  }
  std::vector<std::string> expected;
  for (const auto& [name, parameter] : named_parameters(*seeded_model())) expected.push_back(name);
  EXPECT_THAT(all, testing::UnorderedElementsAreArray(expected));
}

TEST(Pipeline, WithoutAnyImageTheImageStageHasNoGradients) {
  for (const int ranks : {2, 4}) {
    const TempDir folder;
    const auto statuses = run_ranks(ranks, folder, [](ProcessGroups& groups, Recorder& recorder) {
      const std::vector<Batch> batches = {items(0, 2, false), items(2, 2, false)};
      const Stage stage(Schedule::one_f_one_b, groups, recorder, batches);
      return stage_difference(stage, Whole(batches)) < kTolerance ? 0 : 1;
    });
    EXPECT_THAT(statuses, Each(0));
  }
}

TEST(Pipeline, EachRankTrainsItsStageAlone) {
  const TempDir folder;
  const auto statuses = run_ranks(2, folder, [](ProcessGroups& groups, Recorder& recorder) {
    const Stage stage(Schedule::gpipe, groups, recorder, {items(0, 2)});
    const bool image = groups.who().rank == 0;
    for (const auto& [name, parameter] : named_parameters(*stage.model)) {
      const bool own = name.starts_with("image.") == image;
      if (parameter.requires_grad() != own || parameter.grad().defined() != own) return 1;
    }
    return 0;
  });
  EXPECT_THAT(statuses, Each(0));
}

TEST(Pipeline, MakesTheModelWholeAndItsNormsToo) {
  const TempDir folder;
  const auto statuses = run_ranks(2, folder, [](ProcessGroups& groups, Recorder& recorder) {
    const Stage stage(Schedule::gpipe, groups, recorder, {items(0, 2)});
    const int rank = groups.who().rank;
    const at::NoGradGuard no_grad;
    for (auto& [name, parameter] : named_parameters(*stage.model)) parameter.fill_(rank + 1);
    stage.strategy->gather_everything();
    for (const auto& [name, parameter] : named_parameters(*stage.model)) {
      const int owner = name.starts_with("image.") ? 1 : 2;
      if (!parameter.eq(owner).all().item<bool>()) return 1;
    }
    return stage.strategy->norm_squared(rank == 0 ? 3 : 4) == 7 ? 0 : 2;
  });
  EXPECT_THAT(statuses, Each(0));
}

TEST(Pipeline, AFrozenImageEncoderTakesNoGradient) {
  const TempDir folder;
  const auto statuses = run_ranks(2, folder, [](ProcessGroups& groups, Recorder& recorder) {
    ContrastiveModel model = seeded_model();
    freeze(*model, {"image."});
    const auto strategy = make_strategy(options(Schedule::gpipe), {model, groups, recorder});
    strategy->start();
    strategy->run_step({items(0, 2), items(2, 2)});
    return 0;
  });
  EXPECT_THAT(statuses, Each(0));
}

TEST(Pipeline, StagesWithDifferentBatchesAreAnError) {
  constexpr ExitStatus kRefused = 42;
  const TempDir folder;
  const auto statuses = run_ranks(2, folder, [&](ProcessGroups& groups, Recorder& recorder) {
    const int rank = groups.who().rank;
    try {
      Stage(Schedule::gpipe, groups, recorder, {items(0, 2 + rank)});
    } catch (const std::runtime_error& error) {
      const std::string what = error.what();
      const bool explained = what.find("has 2 items, this one 3 items") != what.npos;
      if (rank == 0) return 7;  // its peer is gone
      groups.announce_done();
      std::_Exit(explained ? kRefused : 1);
    }
    return 0;
  });
  EXPECT_THAT(statuses, ElementsAre(7, kRefused));
}

// --- in the loop ---------------------------------------------------------------------------------

struct TrainedByPipeline {
  std::vector<std::string> losses;  // of each rank, as text
  Recorded first, second;
};

TrainedByPipeline trained_losses(const Scenario& s) {
  TempDir folder;
  const auto statuses = run_ranks(s.ranks, folder, [&](ProcessGroups& groups, Recorder& recorder) {
    WorkerResult result;
    make_train_loop(s, groups, recorder, result)->run();
    std::string text;
    for (const double loss : result.losses) text += std::to_string(loss) + "\n";
    folder.write("losses" + std::to_string(groups.who().rank), text);
    return result.idle_ns.value_or(0) > 0 ? 0 : 1;
  });
  EXPECT_THAT(statuses, Each(0));
  TrainedByPipeline out{{}, recorded(folder.path(), 0), recorded(folder.path(), 1)};
  for (int rank = 0; rank < s.ranks; ++rank) {
    out.losses.push_back(TempDir::read(folder.file("losses" + std::to_string(rank))));
  }
  return out;
}

Scenario small_pipeline(Schedule schedule, int micro_batches) {
  Scenario s;
  s.data.items = 64;
  s.data.modality = {{.ranks = {}, .steps = {1}, .has = {Modality::text}}};
  s.strategy = options(schedule);
  s.strategy.micro_batches = micro_batches;
  s.train.steps = 3;
  s.train.batch_size = 4;
  return s;
}

TEST(PipelineLoop, BothRanksAndBothSchedulesReportTheSameLosses) {
  const TrainedByPipeline gpipe = trained_losses(small_pipeline(Schedule::gpipe, 3));
  const TrainedByPipeline other = trained_losses(small_pipeline(Schedule::one_f_one_b, 3));
  EXPECT_THAT(gpipe.losses, Each(gpipe.losses[0]));
  EXPECT_EQ(gpipe.losses, other.losses);
  EXPECT_EQ(std::count(gpipe.losses[0].begin(), gpipe.losses[0].end(), '\n'), 3);
}

TEST(PipelineLoop, AReplicasRanksReadTheSameItemsAndReplicasDifferentOnes) {
  Scenario s = small_pipeline(Schedule::gpipe, 2);
  s.ranks = 4;
  TempDir folder;
  const auto statuses = run_ranks(4, folder, [&](ProcessGroups& groups, Recorder& recorder) {
    WorkerResult result;
    make_train_loop(s, groups, recorder, result)->run();
    return 0;
  });
  ASSERT_THAT(statuses, Each(0));
  const auto indices = [&](int rank) {
    return recorded(folder.path(), rank).trace.data.at(0).indices;
  };
  EXPECT_EQ(indices(0).size(), 8U);
  EXPECT_EQ(indices(0), indices(1));
  EXPECT_EQ(indices(2), indices(3));
  EXPECT_NE(indices(0), indices(2));
}

TEST(PipelineLoop, ClipsByTheNormOfBothStagesAndEvaluatesTheWholeModel) {
  Scenario s = small_pipeline(Schedule::one_f_one_b, 2);
  s.train.clip.image = s.train.clip.text = 0.1;
  s.train.evaluate = true;
  const TrainedByPipeline run = trained_losses(s);
  EXPECT_THAT(run.first.calls(2), testing::Contains(HasSubstr("#pipeline.norm")).Times(2));
  EXPECT_THAT(run.first.calls(2), testing::Contains(HasSubstr("logit_scale #pipeline.gather")));
}

TEST(PipelineLoop, FourStagesReportTheLossesOfTwo) {
  const TrainedByPipeline two = trained_losses(small_pipeline(Schedule::one_f_one_b, 3));
  Scenario s = small_pipeline(Schedule::one_f_one_b, 3);
  s.strategy.stages = s.ranks = 4;
  s.train.clip.image = s.train.clip.text = 100;  // no limit, but the norms are asked for
  s.train.evaluate = true;
  const TrainedByPipeline four = trained_losses(s);
  EXPECT_THAT(four.losses, Each(four.losses[0]));
  std::istringstream a(two.losses[0]), b(four.losses[0]);
  const std::vector<double> expected{std::istream_iterator<double>(a), {}};
  const std::vector<double> found{std::istream_iterator<double>(b), {}};
  EXPECT_THAT(found, testing::Pointwise(testing::DoubleNear(1e-4), expected));
}

// BERT hides words at random: the second half must know which.
TEST(PipelineLoop, TheHalvesOfAMaskedTextEncoderSeeTheSameWords) {
  Scenario s = small_pipeline(Schedule::gpipe, 1);
  s.model.text = "minilm";
  s.strategy.stages = s.ranks = 4;
  s.train.steps = 1;
  s.train.batch_size = 2;
  TempDir folder;
  const auto statuses = run_ranks(4, folder, [&](ProcessGroups& groups, Recorder& recorder) {
    WorkerResult result;
    make_train_loop(s, groups, recorder, result)->run();
    return std::isfinite(result.losses.at(0)) ? 0 : 1;
  });
  EXPECT_THAT(statuses, Each(0));
  EXPECT_THAT(recorded(folder.path(), 3).calls(0),
              testing::Contains(HasSubstr("tokens.0 #pipeline.seen")));
}

TEST(PipelineLoop, WhatTravelsIsInTheTrace) {
  const TrainedByPipeline run = trained_losses(small_pipeline(Schedule::gpipe, 1));
  EXPECT_THAT(run.first.calls(0),
              ElementsAre(AllOf(HasSubstr("send replica0:"), HasSubstr("#pipeline.shape")),
                          HasSubstr("float32[4,64] features.0 #pipeline.features"),
                          AllOf(HasSubstr("recv replica0.back:"), HasSubstr("#pipeline.loss")),
                          HasSubstr("gradient.0 #pipeline.gradient")));
  // Step 1 has no images: only that is said, and the loss.
  EXPECT_THAT(run.first.calls(1),
              ElementsAre(HasSubstr("#pipeline.shape"), HasSubstr("#pipeline.loss")));
  EXPECT_THAT(run.second.calls(1),
              ElementsAre(HasSubstr("recv replica0:"), HasSubstr("send replica0.back:")));
}

}  // namespace
}  // namespace lockstep::runtime
