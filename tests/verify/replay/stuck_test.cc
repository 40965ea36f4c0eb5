#include "verify/replay/stuck.h"

#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::verify {
namespace {

using ::testing::ElementsAre;

// Positions and wait points of ranks that each wait for one other rank.
struct Waits {
  std::vector<Position> positions;
  std::vector<WaitPoint> points;
};
constexpr std::uint32_t kRuns = UINT32_MAX;  // this rank waits for nobody

// {1, kRuns}: rank 0 waits for rank 1, which runs.
Waits waits(const std::vector<std::uint32_t>& waits_for) {
  Waits out;
  for (std::uint32_t r = 0; r < waits_for.size(); ++r) {
    Position& position = out.positions.emplace_back();
    position.state = Position::State::running;
    if (waits_for[r] == kRuns) continue;
    position.blocked = 0;
    WaitPoint& point = out.points.emplace_back();
    point.waiting = {r};
    point.missing = {waits_for[r]};
  }
  return out;
}

TEST(Stuck, WhoWaitsForARunningRankMayMove) {
  const Waits chain = waits({1, 2, kRuns});
  EXPECT_THAT(find_stuck(chain.positions, chain.points), ElementsAre(false, false, false));
}

TEST(Stuck, ACycleIsStuckAndWhoWaitsForIt) {
  const Waits cycle = waits({1, 0, 0, kRuns});
  EXPECT_THAT(find_stuck(cycle.positions, cycle.points), ElementsAre(true, true, true, false));
}

TEST(Stuck, ARankThatRaisedLetsNobodyGo) {
  Waits dead = waits({1, kRuns});
  dead.positions[1].state = Position::State::raised;
  EXPECT_THAT(find_stuck(dead.positions, dead.points), ElementsAre(true, false));
}

TEST(Stuck, OneRunningSenderIsEnoughForAnySource) {
  Waits any = waits({1, 0, kRuns});
  any.points[0].missing = {1, 2};
  EXPECT_THAT(find_stuck(any.positions, any.points), ElementsAre(true, true, false));
  any.points[0].any_source = true;
  EXPECT_THAT(find_stuck(any.positions, any.points), ElementsAre(false, false, false));
}

TEST(Stuck, CallsThatDoNotMatchLetNobodyGo) {
  Waits differing = waits({1, kRuns});
  differing.points[0].mismatched = true;
  EXPECT_THAT(find_stuck(differing.positions, differing.points), ElementsAre(true, false));
}

}  // namespace
}  // namespace lockstep::verify
