// Training that stops and goes on, on real ranks.
#include "runtime/train/checkpoint.h"

#include <filesystem>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/models/safetensors.h"
#include "runtime/train/batch_source.h"
#include "runtime/train/optimization.h"
#include "tests/runtime/rank_job.h"

namespace lockstep::runtime {
namespace {

using testing::Each;
using StrategyKind = Scenario::Strategy::Kind;

Scenario small_job(StrategyKind kind) {
  Scenario s;
  s.data.items = 64;
  s.strategy.kind = kind;
  s.train.steps = 3;
  s.train.batch_size = 4;
  return s;
}

class Resume : public testing::TestWithParam<Scenario::Strategy::Kind> {};

TEST_P(Resume, ContinuesBitForBit) {
  const TempDir kept;
  Scenario s = small_job(GetParam());
  s.train.steps = 4;
  const TempDir whole_folder;
  const auto whole = losses(s, whole_folder);

  s.train.checkpoint.folder = kept.path();
  s.train.checkpoint.every = 2;
  s.train.steps = 2;
  const TempDir first_folder;
  losses(s, first_folder);
  s.train.steps = 4;
  s.train.checkpoint.resume = true;
  const TempDir second_folder;
  const auto rest = losses(s, second_folder);
  ASSERT_EQ(rest.size(), 2U);
  EXPECT_EQ(rest[0], whole[2]);
  EXPECT_EQ(rest[1], whole[3]);
}

INSTANTIATE_TEST_SUITE_P(Strategies, Resume,
                         testing::Values(Scenario::Strategy::Kind::manual,
                                         Scenario::Strategy::Kind::ddp,
                                         Scenario::Strategy::Kind::fsdp));

TEST(Checkpoint, DamageAndOtherJobsAreErrors) {
  const TempDir kept;
  Scenario s = small_job(Scenario::Strategy::Kind::manual);
  s.train.steps = 2;
  s.train.checkpoint = {.folder = kept.path(), .every = 2};
  const TempDir folder;
  losses(s, folder);
  const std::string file = kept.file("step_000002/rank_0.safetensors");
  const std::string good = TempDir::read(file);

  const TempDir again;
  const auto statuses = run_ranks(1, again, [&](ProcessGroups& groups, Recorder& recorder) {
    const auto source = BatchSource::open(s, 0, 2);
    ContrastiveModel model(s.model, (*source)->input());
    const NamedTensors trained = trained_parameters(*model);
    const auto optimizer = make_optimizer(s.train, trained);
    LossScaler scaler(s.train, groups.world(), recorder);
    const auto strategy = make_strategy(s.strategy, {model, groups, recorder});
    TrainingState state{trained, named_buffers(*model), *optimizer, scaler};
    const auto loads = [&](RankOf who, std::uint64_t digest) {
      return bool(Checkpoints(kept.path(), who, digest).load(state, *strategy, 2));
    };
    const std::uint64_t digest = (*source)->digest();
    if (!loads({0, 2}, digest)) return 1;
    if (loads({0, 2}, digest + 1)) return 2;  // other data
    if (loads({0, 3}, digest)) return 3;      // another number of ranks
    if (Checkpoints(kept.path(), {0, 2}, digest).latest() != 2) return 4;
    if (Checkpoints(kept.path(), {0, 3}, digest).latest()) return 5;  // a rank's file is not there
    std::string bad = good;
    bad[bad.size() - 9] = static_cast<char>(bad[bad.size() - 9] ^ 1);
    kept.write("step_000002/rank_0.safetensors", bad);
    if (loads({0, 2}, digest)) return 6;
    kept.write("step_000002/rank_0.safetensors", good.substr(0, good.size() / 2));
    if (loads({0, 2}, digest)) return 7;
    return 0;
  });
  EXPECT_THAT(statuses, Each(0));
}

// Trains `steps` steps with a checkpoint after each `every`, not going on from an earlier one.
void train_from_start(const TempDir& kept, int steps, int every, bool gathered = false) {
  Scenario s = small_job(Scenario::Strategy::Kind::manual);
  s.train.steps = steps;
  s.train.checkpoint = {.folder = kept.path(), .every = every, .gathered = gathered};
  const TempDir folder;
  losses(s, folder);
}

// The steps that a resume would begin with.
std::optional<std::int64_t> latest_of_two(const TempDir& kept) {
  return Checkpoints(kept.path(), {0, 2}, 0).latest();
}

TEST(Checkpoint, ARankThatIsLookedAtAloneWritesAndFindsNoFiles) {
  const TempDir kept;
  Scenario s = small_job(Scenario::Strategy::Kind::manual);
  const TempDir folder;
  const auto statuses = run_ranks(1, folder, [&](ProcessGroups& groups, Recorder& recorder) {
    const auto source = BatchSource::open(s, 0, 1);
    ContrastiveModel model(s.model, (*source)->input());
    const NamedTensors trained = trained_parameters(*model);
    const auto optimizer = make_optimizer(s.train, trained);
    LossScaler scaler(s.train, groups.world(), recorder);
    const auto strategy = make_strategy(s.strategy, {model, groups, recorder});
    const TrainingState state{trained, named_buffers(*model), *optimizer, scaler};
    const Checkpoints kept_ones(kept.path(), {0, 1}, 0);
    const Checkpoints none(kept.path(), {0, 1}, 0, Checkpoints::Files::none);
    if (!none.save(state, 2) || !none.save_gathered(state, *strategy, 2)) return 1;
    if (kept_ones.latest()) return 2;
    if (!kept_ones.save(state, 1) || kept_ones.latest() != 1) return 3;
    if (none.latest()) return 4;
    return 0;
  });
  EXPECT_THAT(statuses, Each(0));
}

TEST(Checkpoint, AJobThatStartsAgainReplacesAnEarlierOnes) {
  const TempDir kept;
  train_from_start(kept, 4, 4);
  ASSERT_EQ(latest_of_two(kept), 4);
  train_from_start(kept, 3, 1);
  EXPECT_EQ(latest_of_two(kept), 3);
}

TEST(Checkpoint, AJobThatStartsAgainReplacesAnEarlierOnesOfTheOtherLayout) {
  const TempDir kept;
  train_from_start(kept, 4, 2, /*gathered=*/true);
  train_from_start(kept, 2, 2, /*gathered=*/false);
  EXPECT_EQ(latest_of_two(kept), 2);
  EXPECT_FALSE(std::filesystem::exists(kept.file("step_000002/whole.safetensors")));
  train_from_start(kept, 1, 1, /*gathered=*/true);
  EXPECT_EQ(latest_of_two(kept), 1);
}

TEST(Checkpoint, KeepsTheLastAndTheOneBeforeWhereAJobGoesOn) {
  const TempDir kept;
  train_from_start(kept, 3, 1);
  std::set<std::string> files;
  for (const auto& step : std::filesystem::recursive_directory_iterator(kept.path())) {
    if (step.is_regular_file()) files.insert(step.path().lexically_relative(kept.path()));
  }
  EXPECT_TRUE(files.contains("step_000003/rank_0.safetensors"));
  EXPECT_TRUE(files.contains("step_000003/rank_1.safetensors"));
  EXPECT_FALSE(files.contains("step_000001/rank_0.safetensors"));
}

// --- gathered ------------------------------------------------------------------------------------

// All ranks read the same items, so that one rank alone does what two do.
Scenario of_any_ranks(StrategyKind kind, const TempDir& kept) {
  Scenario s = small_job(kind);
  s.fault = Fault::unsharded_data;
  s.train.steps = 4;
  s.train.checkpoint.folder = kept.path();
  s.train.checkpoint.gathered = true;
  return s;
}

struct Route {
  StrategyKind made_by, resumed_by;
  int ranks;  // that resume
};

class Gathered : public testing::TestWithParam<Route> {};

TEST_P(Gathered, ContinuesWithAnotherStrategyAndNumberOfRanks) {
  const TempDir kept;
  Scenario s = of_any_ranks(GetParam().made_by, kept);
  s.train.checkpoint.every = 2;
  const TempDir whole_folder;
  std::vector<double> whole;
  {
    Scenario uninterrupted = s;
    uninterrupted.train.checkpoint = {};
    whole = losses(uninterrupted, whole_folder);
  }
  s.train.steps = 2;
  const TempDir first_folder;
  losses(s, first_folder);

  Scenario rest = of_any_ranks(GetParam().resumed_by, kept);
  rest.train.checkpoint.resume = true;
  const TempDir second_folder;
  EXPECT_THAT(losses(rest, second_folder, GetParam().ranks),
              testing::Pointwise(testing::DoubleNear(1e-4),
                                 std::vector<double>(whole.begin() + 2, whole.end())));
}

INSTANTIATE_TEST_SUITE_P(Routes, Gathered,
                         testing::Values(Route{StrategyKind::fsdp, StrategyKind::manual, 1},
                                         Route{StrategyKind::fsdp, StrategyKind::ddp, 2},
                                         Route{StrategyKind::manual, StrategyKind::fsdp, 3},
                                         Route{StrategyKind::ddp, StrategyKind::ddp, 1}));

TEST(Gathered, IsOneFileWithPlainNames) {
  const TempDir kept;
  Scenario s = of_any_ranks(StrategyKind::fsdp, kept);
  s.train.checkpoint.every = 1;
  const TempDir folder;
  losses(s, folder);
  const auto file = SafetensorsFile::open(kept.file("step_000004/whole.safetensors"));
  ASSERT_TRUE(static_cast<bool>(file));
  const auto find = [&](const std::string& name) -> const StoredTensor* {
    for (const StoredTensor& tensor : file->header().tensors) {
      if (tensor.name == name) return &tensor;
    }
    return nullptr;
  };
  const StoredTensor* weight = find("image_proj.weight");
  ASSERT_NE(weight, nullptr);
  EXPECT_EQ(weight->shape, (std::vector<std::int64_t>{32, 64}));
  EXPECT_NE(find("image.stem_norm.running_mean"), nullptr);
  EXPECT_NE(find("optimizer.image_proj.weight.exp_avg"), nullptr);
  std::size_t steps = 0;
  for (const auto& step : std::filesystem::directory_iterator(kept.path())) {
    ++steps;
    for (const auto& entry : std::filesystem::directory_iterator(step)) {
      EXPECT_EQ(entry.path().filename(), "whole.safetensors");
    }
  }
  EXPECT_EQ(steps, 1U);  // older ones are gone
}

}  // namespace
}  // namespace lockstep::runtime
