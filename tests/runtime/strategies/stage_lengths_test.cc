// Lengths exchanged by real stages of a pipeline.
#include "runtime/strategies/stage_lengths.h"

#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/rank_job.h"
#include "tests/runtime/small_model.h"

namespace lockstep::runtime {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(StageLengths, NeighboursOfFourStagesAgreeAndSayWhatTravelled) {
  const TempDir folder;
  const auto body = [](ProcessGroups& groups, Recorder& recorder) {
    StageLengths lengths(4, groups, recorder, /*sent_first=*/false);
    lengths.exchange({items(0, 2), items(2, 3, /*with_images=*/false)});
    return 0;
  };
  EXPECT_THAT(run_ranks(4, folder, body), Each(0));
  // image_back lies between image_front and text_back: one stage before the last, it receives
  // first.
  EXPECT_THAT(recorded(folder.path(), 1).calls(),
              ElementsAre(HasSubstr("recv replica0.lengths:"), HasSubstr("recv replica0.lengths:"),
                          HasSubstr("send replica0.lengths:"),
                          HasSubstr("int64[2,3] lengths #pipeline.lengths")));
}

TEST(StageLengths, AStageWithAnotherBatchIsAnErrorOnBothSides) {
  const TempDir folder;
  const auto body = [](ProcessGroups& groups, Recorder& recorder) {
    StageLengths lengths(2, groups, recorder, /*sent_first=*/false);
    try {
      lengths.exchange({items(0, groups.who().rank == 0 ? 2 : 3)});
      return 1;
    } catch (const std::runtime_error& error) {
      const bool first = groups.who().rank == 0;
      const std::string own = first ? "this one 2 texts of 10 tokens, 2 pictures"
                                    : "this one 3 texts of 10 tokens, 3 pictures";
      return std::string(error.what()).find(own) == std::string::npos ? 2 : 0;
    }
  };
  const auto statuses = run_ranks(2, folder, body);
  EXPECT_THAT(statuses, Each(0));
}

}  // namespace
}  // namespace lockstep::runtime
