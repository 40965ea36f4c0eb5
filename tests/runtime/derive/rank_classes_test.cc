// Which ranks one of them can stand for.
#include <gmock/gmock.h>

#include "runtime/derive/derivation_plan.h"

namespace lockstep::runtime {
namespace {

using ::testing::ElementsAre;

Scenario parsed_for_classes(const std::string& rest) {
  return parse_scenario("lockstep: 1\nname: x\nranks: 6\n" + rest, "job.yaml").value();
}

TEST(Representatives, Rank0IsTheRootAndTheOthersAreAlike) {
  EXPECT_THAT(representatives(parsed_for_classes("strategy: ddp")), ElementsAre(0, 1, 1, 1, 1, 1));
  EXPECT_THAT(representatives(parsed_for_classes("strategy: fsdp")), ElementsAre(0, 1, 1, 1, 1, 1));
}

TEST(Representatives, WhatARankMayMeetTellsItApartOnlyWhereAsked) {
  const Scenario job = parsed_for_classes("data: {modality: [{ranks: [2], has: [text]}]}");
  EXPECT_THAT(representatives(job), ElementsAre(0, 1, 1, 1, 1, 1));
  EXPECT_THAT(representatives(job, {0, 0, 1, 0, 0, 1}), ElementsAre(0, 1, 2, 1, 1, 2));
}

TEST(Representatives, AGroupOfTheRanksWithImagesDoes) {
  EXPECT_THAT(representatives(parsed_for_classes(
                  "strategy: {kind: manual, process_groups: image-ranks}\n"
                  "data: {modality: [{ranks: [2, 4], has: [text]}, {has: [image, text]}]}")),
              ElementsAre(0, 1, 2, 1, 2, 1));
}

TEST(Representatives, CopiesOfTheModelStandForEachOtherPlaceByPlace) {
  for (const char* strategy :
       {"strategy: {kind: fsdp, shard_ranks: 2}", "strategy: {kind: pipeline, schedule: gpipe}"}) {
    EXPECT_THAT(representatives(parsed_for_classes(strategy)), ElementsAre(0, 1, 2, 3, 2, 3));
  }
  // Rank 5 differs, and its copy with it.
  EXPECT_THAT(representatives(parsed_for_classes("strategy: {kind: fsdp, shard_ranks: 2}"),
                              {0, 0, 0, 0, 0, 1}),
              ElementsAre(0, 1, 2, 3, 4, 5));
}

}  // namespace
}  // namespace lockstep::runtime
