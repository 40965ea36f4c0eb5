#include <random>

#include <gtest/gtest.h>

#include "reports/findings/figures/figures.h"

namespace lockstep::reports::html {
namespace {

using Kind = WaitEdge::Kind;

void expect_apart_and_within(const WaitLayout& layout) {
  for (std::size_t a = 0; a < layout.boxes.size(); ++a) {
    const Box& one = layout.boxes[a];
    EXPECT_GE(one.x, 0) << a;
    EXPECT_GE(one.y, 0) << a;
    EXPECT_LE(one.x + one.width, layout.width) << a;
    EXPECT_LE(one.y + one.height, layout.height) << a;
    for (std::size_t b = 0; b < a; ++b) {
      const Box& other = layout.boxes[b];
      const bool apart = one.x >= other.x + other.width || other.x >= one.x + one.width ||
                         one.y >= other.y + other.height || other.y >= one.y + one.height;
      EXPECT_TRUE(apart) << a << " covers " << b;
    }
  }
}

TEST(WaitLayout, WhoWaitsStandsLeftOfWhomTheyWaitFor) {
  const WaitLayout layout = lay_out(4, {{0, 2}, {1, 2}, {2, 3}});
  expect_apart_and_within(layout);
  EXPECT_LT(layout.boxes[0].x, layout.boxes[2].x);
  EXPECT_EQ(layout.boxes[0].x, layout.boxes[1].x);
  EXPECT_LT(layout.boxes[2].x, layout.boxes[3].x);
  EXPECT_FALSE(layout.goes_round);
}

TEST(WaitLayout, ARingGoesRoundAndVictimsStandOutside) {
  // 0 -> 1 -> 2 -> 0, and one that waits for each of them.
  const WaitLayout layout = lay_out(6, {{0, 1}, {1, 2}, {2, 0}, {3, 0}, {4, 1}, {5, 2}});
  expect_apart_and_within(layout);
  EXPECT_TRUE(layout.goes_round);
  EXPECT_LT(layout.boxes[3].x, layout.boxes[0].x) << "0 is the ring's left";
  EXPECT_GT(layout.boxes[4].x, layout.boxes[1].x) << "1 and 2 its right";
  EXPECT_GT(layout.boxes[5].x, layout.boxes[2].x);
}

TEST(WaitLayout, TwoThatWaitForEachOtherStandSideBySide) {
  const WaitLayout layout = lay_out(2, {{0, 1}, {1, 0}});
  expect_apart_and_within(layout);
  EXPECT_TRUE(layout.goes_round);
  EXPECT_EQ(layout.boxes[0].y, layout.boxes[1].y);
}

TEST(WaitLayout, MismatchedCallsAreNoRing) {
  const WaitLayout layout = lay_out(2, {{0, 1, Kind::mismatch}});
  expect_apart_and_within(layout);
  EXPECT_FALSE(layout.goes_round);
}

TEST(WaitLayout, NoGraphMakesNodesCoverEachOther) {
  std::mt19937 random(7);  // any seed will do
  for (int round = 0; round < 300; ++round) {
    const std::size_t nodes = 1 + random() % 16;
    std::vector<WaitEdge> edges;
    for (std::size_t e = random() % 24; e > 0; --e)
      edges.push_back({random() % nodes, random() % nodes});
    const WaitLayout layout = lay_out(nodes, edges);
    ASSERT_EQ(layout.boxes.size(), nodes);
    expect_apart_and_within(layout);
    if (HasFailure()) FAIL() << "round " << round;
  }
}

}  // namespace
}  // namespace lockstep::reports::html
