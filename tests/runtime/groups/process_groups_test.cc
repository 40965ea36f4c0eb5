#include "runtime/groups/process_groups.h"

#include <stdexcept>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/rank_job.h"

namespace lockstep::runtime {
namespace {

using testing::ElementsAre;

// If they did not wait for each other's connections, some round would fail on a closed one.
TEST(ProcessGroups, RanksThatEndAtOnceLeaveTheOthersTheirConnections) {
  for (int round = 0; round < 20; ++round) {
    const TempDir folder;
    const auto statuses = run_ranks(4, folder, [](ProcessGroups& groups, Recorder&) {
      groups.world();
      return groups.who().rank == 0 ? 0 : 1;
    });
    ASSERT_THAT(statuses, ElementsAre(0, 1, 1, 1)) << "round " << round;
  }
}

TEST(ProcessGroups, AValueThatIsNotRankZerosIsAnErrorThatShowsBoth) {
  const TempDir folder;
  const auto statuses = run_ranks(3, folder, [](ProcessGroups& groups, Recorder&) {
    groups.require_same("the seed", "7");
    try {
      groups.require_same("the data", groups.who().rank == 2 ? "b" : "a");
      return 0;
    } catch (const std::runtime_error& error) {
      return std::string(error.what()) == "the data is b on rank 2, and a on rank 0" ? 1 : 2;
    }
  });
  EXPECT_THAT(statuses, ElementsAre(0, 0, 1));
}

}  // namespace
}  // namespace lockstep::runtime
