// Which ranks one of them can stand for.
#include <gmock/gmock.h>

#include "runtime/derive/derivation_plan.h"

namespace lockstep::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Scenario parsed_for_classes(const std::string& rest) {
  return parse_scenario("lockstep: 1\nname: x\nranks: 6\n" + rest, "job.yaml").value();
}

TEST(RankClasses, Rank0IsTheRootAndTheOthersAreAlike) {
  EXPECT_THAT(rank_classes(parsed_for_classes("strategy: ddp")).value(),
              ElementsAre(ElementsAre(0), ElementsAre(1, 2, 3, 4, 5)));
}

TEST(RankClasses, WhatARankMayMeetDoesNotTellItApart) {
  EXPECT_THAT(
      rank_classes(parsed_for_classes("data: {modality: [{ranks: [2], has: [text]}]}")).value(),
      ElementsAre(ElementsAre(0), ElementsAre(1, 2, 3, 4, 5)));
}

TEST(RankClasses, AGroupOfTheRanksWithImagesDoes) {
  EXPECT_THAT(
      rank_classes(parsed_for_classes(
                       "strategy: {kind: manual, process_groups: image-ranks}\n"
                       "data: {modality: [{ranks: [2, 4], has: [text]}, {has: [image, text]}]}"))
          .value(),
      ElementsAre(ElementsAre(0), ElementsAre(1, 3, 5), ElementsAre(2, 4)));
}

TEST(RankClasses, GroupsThatDifferFromRankToRankHaveNone) {
  const auto classes = rank_classes(parsed_for_classes("strategy: {kind: fsdp, shard_ranks: 2}"));
  ASSERT_FALSE(classes);
  EXPECT_THAT(classes.error().message, HasSubstr("in other groups"));
}

TEST(RankClassesInCopies, RanksOfOneShardAreAlikeBesideTheFirstCopys) {
  EXPECT_THAT(
      rank_classes_in_copies(parsed_for_classes("strategy: {kind: fsdp, shard_ranks: 2}")).value(),
      ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2, 4), ElementsAre(3, 5)));
  EXPECT_THAT(rank_classes_in_copies(parsed_for_classes("strategy: fsdp")).value(),
              ElementsAre(ElementsAre(0), ElementsAre(1, 2, 3, 4, 5)));
  const auto stages =
      rank_classes_in_copies(parsed_for_classes("strategy: {kind: pipeline, schedule: gpipe}"));
  ASSERT_FALSE(stages);
  EXPECT_THAT(stages.error().message, HasSubstr("in other groups"));
}

}  // namespace
}  // namespace lockstep::runtime
