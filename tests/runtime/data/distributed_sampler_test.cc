#include "runtime/data/distributed_sampler.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/runtime/data/shared_data.h"

namespace lockstep::runtime {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(DistributedSampler, EqualsPyTorchs) {
  const auto file = shared_data("sampler/cases.jsonl");
  SKIP_WITHOUT(file);
  for (const std::string& line : file_lines(file)) {
    SCOPED_TRACE(line.substr(0, 100));
    const auto wanted = nlohmann::json::parse(line);
    const auto sampler =
        DistributedSampler::make({wanted["n"], wanted["world_size"], wanted["seed"],
                                  wanted["epoch"], wanted["shuffle"], wanted["drop_last"]});
    ASSERT_TRUE(sampler);
    for (int rank = 0; rank < wanted["world_size"]; ++rank) {
      EXPECT_EQ(sampler->indices(rank),
                wanted["indices"][static_cast<std::size_t>(rank)].get<std::vector<std::int64_t>>());
    }
  }
}

TEST(DistributedSampler, TheFirstItemsRepeatAtTheEnd) {
  const auto sampler = DistributedSampler::make({.items = 5, .world_size = 3, .shuffle = false});
  ASSERT_TRUE(sampler);
  EXPECT_THAT(sampler->indices(0), ElementsAre(0, 3));
  EXPECT_THAT(sampler->indices(1), ElementsAre(1, 4));
  EXPECT_THAT(sampler->indices(2), ElementsAre(2, 0));
}

TEST(DistributedSampler, OrTheLastAreLeftOut) {
  const auto sampler =
      DistributedSampler::make({.items = 5, .world_size = 3, .shuffle = false, .drop_last = true});
  ASSERT_TRUE(sampler);
  EXPECT_THAT(sampler->indices(2), ElementsAre(2));
}

TEST(DistributedSampler, FewerItemsThanRanksRepeatAsOftenAsNeeded) {
  const auto padded = DistributedSampler::make({.items = 1, .world_size = 4});
  ASSERT_TRUE(padded);
  for (int rank = 0; rank < 4; ++rank) EXPECT_THAT(padded->indices(rank), ElementsAre(0));
  const auto cut = DistributedSampler::make({.items = 1, .world_size = 4, .drop_last = true});
  ASSERT_TRUE(cut);
  EXPECT_THAT(cut->indices(0), IsEmpty());
}

TEST(DistributedSampler, RefusesWhatCannotBeSampled) {
  EXPECT_FALSE(DistributedSampler::make({.items = 0}));
  EXPECT_FALSE(DistributedSampler::make({.items = kMaxSampled + 1}));
  EXPECT_FALSE(DistributedSampler::make({.items = 4, .world_size = 0}));
  EXPECT_FALSE(DistributedSampler::make({.items = 4, .epoch = -1}));
}

TEST(BatchesOf, CutsInOrder) {
  EXPECT_THAT(batches_of({4, 5, 6}, 2, false), ElementsAre(ElementsAre(4, 5), ElementsAre(6)));
  EXPECT_THAT(batches_of({4, 5, 6}, 2, true), ElementsAre(ElementsAre(4, 5)));
}

}  // namespace
}  // namespace lockstep::runtime
