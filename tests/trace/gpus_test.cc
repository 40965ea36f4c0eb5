// Which GPU a rank uses: what sources tell, and what of it is believed.
#include "trace/gpus.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep::trace {
namespace {

struct Told {
  std::string host;
  std::int32_t gpu;
};

// The GPUs that are kept, by rank: "0 - 2".
std::string kept(const std::vector<Told>& ranks) {
  Run run;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    RankTrace trace;
    trace.rank = Rank(static_cast<std::int32_t>(r));
    trace.host = ranks[r].host;
    trace.gpu = ranks[r].gpu;
    run.ranks.push_back(trace);
  }
  keep_plausible_gpus(run);
  std::string out;
  for (const RankTrace& trace : run.ranks)
    out += (out.empty() ? "" : " ") + (trace.gpu == kNone ? "-" : std::to_string(trace.gpu));
  return out;
}

TEST(Gpus, CountWhereTheRanksOfAHostHaveDifferentOnes) {
  EXPECT_EQ(kept({{"a", 0}, {"a", 1}, {"b", 0}, {"b", 1}}), "0 1 0 1");
  EXPECT_EQ(kept({{"a", 0}, {"a", 3}, {"a", kNone}}), "0 3 -");
}

// CUDA_VISIBLE_DEVICES shows each process one GPU, which it calls 0.
TEST(Gpus, AreDroppedWhereTwoRanksOfAHostHaveTheSame) {
  EXPECT_EQ(kept({{"a", 0}, {"a", 0}, {"b", 0}, {"b", 1}}), "- - 0 1");
  EXPECT_EQ(kept({{"a", 0}, {"a", 0}, {"a", 1}}), "- - -");
}

TEST(Gpus, ASingleZeroMayBeAny) {
  EXPECT_EQ(kept({{"a", 0}}), "-");
  EXPECT_EQ(kept({{"a", 5}}), "5");
}

TEST(Gpus, RanksOfUnknownHostsMayBeOnSeveral) {
  EXPECT_EQ(kept({{"", 0}, {"", 1}, {"", 0}, {"", 1}}), "0 1 0 1");
  EXPECT_EQ(kept({{"", 2}, {"", 2}}), "- -");
}

TEST(Gpus, AnIndexIsANumberThatAHostMayHave) {
  EXPECT_EQ(gpu_index(7), 7);
  EXPECT_EQ(gpu_index(-1), kNone);
  EXPECT_EQ(gpu_index(std::int64_t{1} << 40), kNone);
}

TEST(Locations, OfSourcesThatContradictEachOtherAreNotTaken) {
  trace::Run run;  // Run is testing::Test's here
  run.world_size = 2;
  run.ranks.resize(2);
  run.ranks[0].rank = Rank(0);
  run.ranks[1].rank = Rank(1);
  const std::vector<RankLocation> others = {{Rank(0), 2, "a", 10, 1},
                                            {Rank(0), 2, "b", 10, 1},
                                            {Rank(1), 1, "c", 11, 2}};  // of fewer ranks
  locate_ranks(run, others);
  EXPECT_EQ(run.ranks[0].host, "");
  EXPECT_EQ(run.ranks[0].pid, 10);
  EXPECT_EQ(run.ranks[0].gpu, 1);
  EXPECT_EQ(run.ranks[1].host, "");
  EXPECT_EQ(run.ranks[1].gpu, kNone);
}

}  // namespace
}  // namespace lockstep::trace
