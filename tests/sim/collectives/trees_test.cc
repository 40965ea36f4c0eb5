#include <algorithm>
#include <cstdint>

#include <gtest/gtest.h>

#include "sim/collectives/collective.h"

namespace lockstep::sim {
namespace {

std::int64_t depth(int tree, std::int64_t rank, std::int64_t ranks) {
  std::int64_t hops = 0;
  while ((rank = double_tree_node(tree, rank, ranks).parent) >= 0 && hops <= ranks) ++hops;
  return hops;
}

bool is_inner(int tree, std::int64_t rank, std::int64_t ranks) {
  const TreeNode node = double_tree_node(tree, rank, ranks);
  return node.children[0] >= 0 || node.children[1] >= 0;
}

TEST(DoubleTree, EveryRankReachesTheRootAndParentsKnowTheirChildren) {
  for (std::int64_t n = 2; n <= 200; ++n) {
    for (const int tree : {0, 1}) {
      std::int64_t roots = 0;
      std::int64_t deepest = 0;
      std::int64_t children = 0;
      for (std::int64_t r = 0; r < n; ++r) {
        const TreeNode node = double_tree_node(tree, r, n);
        roots += node.parent < 0;
        deepest = std::max(deepest, depth(tree, r, n));
        for (const std::int64_t child : node.children) {
          if (child < 0) continue;
          ++children;
          EXPECT_EQ(double_tree_node(tree, child, n).parent, r) << n << " " << tree;
        }
      }
      EXPECT_EQ(roots, 1) << n;
      EXPECT_EQ(children, n - 1) << n;
      EXPECT_EQ(deepest, double_tree_height(n)) << n;
    }
  }
}

TEST(DoubleTree, AnInnerNodeOfOneIsALeafOfTheOther) {
  for (std::int64_t n = 4; n <= 64; n += 2) {
    std::int64_t both = 0;
    for (std::int64_t r = 0; r < n; ++r) both += is_inner(0, r, n) && is_inner(1, r, n);
    EXPECT_LE(both, 0) << n;
  }
}

TEST(Log2Ceil, IsTheNumberOfDoublings) {
  EXPECT_EQ(log2_ceil(1), 0);
  EXPECT_EQ(log2_ceil(2), 1);
  EXPECT_EQ(log2_ceil(5), 3);
  EXPECT_EQ(log2_ceil(8), 3);
}

}  // namespace
}  // namespace lockstep::sim
