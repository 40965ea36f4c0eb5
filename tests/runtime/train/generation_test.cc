// Generation on real ranks: what is called where a rank's texts end early.
#include "runtime/train/generation.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/rank_job.h"
#include "tests/runtime/small_model.h"

namespace lockstep::runtime {
namespace {

using testing::Each;

Scenario generating(Scenario::Strategy::Kind kind, bool synced) {
  Scenario s;
  s.data.items = 32;
  s.strategy.kind = kind;
  s.train.steps = 2;
  s.train.batch_size = 4;
  s.train.generate.every = 2;
  s.train.generate.tokens = 5;
  s.train.generate.synced = synced;
  return s;
}

std::ptrdiff_t count(const std::vector<std::string>& calls, const std::string& what) {
  return std::count_if(calls.begin(), calls.end(),
                       [&](const std::string& call) { return call.find(what) != call.npos; });
}

// Calls of a rank in step 1, after which both ranks generate; rank 1's texts end after 2 tokens.
std::vector<std::string> calls_of(Scenario s, int rank) {
  s.train.generate.ends = {{.ranks = {1}, .steps = {}, .after = 2}};
  const TempDir folder;
  losses(s, folder);
  const Recorded run = recorded(folder.path(), rank);
  EXPECT_EQ(count(run.calls(0), "generate."), 0);
  return run.calls(1);
}

TEST(Generation, SyncedRanksAllGatherForTheLongestText) {
  const Scenario s = generating(Scenario::Strategy::Kind::fsdp, /*synced=*/true);
  std::vector<std::string> first = calls_of(s, 0);
  EXPECT_EQ(first, calls_of(s, 1));
  EXPECT_EQ(count(first, "all_reduce world:"), 6);
  EXPECT_EQ(count(first, "max unfinished #generate.unfinished"), 6);
  // In training forward and backward, and for each of five tokens.
  EXPECT_EQ(count(first, "all_gather_into_tensor world:"), count(first, "fsdp.gather"));
  EXPECT_EQ(count(first, "text.block2.norm1.weight"), 2 + 1 + 5);
  EXPECT_EQ(count(first, "image.block2.conv1.weight"), 2 + 1);
}

// Without sharding there is nothing to gather, and a rank may end when it likes.
TEST(Generation, WithoutShardingRanksNeedNotAgree) {
  const std::vector<std::string> calls =
      calls_of(generating(Scenario::Strategy::Kind::ddp, /*synced=*/false), 1);
  EXPECT_EQ(count(calls, "generate."), 0);
}

// The same tokens sharded and whole, until each rank's own end; and training goes on as without.
TEST(Generation, ContinuesEachRanksTextsUntilItsOwnEnd) {
  const TempDir folder;
  const auto body = [](ProcessGroups& groups, Recorder& recorder) {
    const at::Tensor prompt = items(4 * groups.who().rank, 4).tokens.slice(1, 0, 1);
    std::vector<at::Tensor> texts;
    using Kind = Scenario::Strategy::Kind;
    for (const Kind kind : {Kind::manual, Kind::fsdp}) {
      ContrastiveModel model = seeded_model();
      Scenario::Strategy options;
      options.kind = kind;
      const auto strategy = make_strategy(options, {model, groups, recorder});
      strategy->start();
      // More than the encoder has positions on rank 0.
      const TokenLimits limits{groups.who().rank == 0 ? 12 : 3, 0};
      texts.push_back(
          generate_texts(model, *strategy, groups, recorder, prompt, limits, /*synced=*/true));
      if (texts.back().size(1) != 1 + limits.own || !model->is_training()) return 1;
    }
    return texts[0].equal(texts[1]) ? 0 : 2;
  };
  EXPECT_THAT(run_ranks(2, folder, body), Each(0));
}

TEST(Generation, ChangesNothingThatIsTrained) {
  for (const auto kind : {Scenario::Strategy::Kind::ddp, Scenario::Strategy::Kind::fsdp}) {
    Scenario s = generating(kind, /*synced=*/false);
    s.train.steps = 3;
    s.train.generate.every = 1;
    const TempDir folder, other;
    const std::vector<double> with = losses(s, folder);
    s.train.generate = {};
    EXPECT_EQ(with, losses(s, other));
  }
}

}  // namespace
}  // namespace lockstep::runtime
