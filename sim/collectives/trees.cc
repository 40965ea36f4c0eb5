#include "sim/collectives/trees.h"

#include <bit>

namespace lockstep::sim {
namespace {

// The lowest bit of a rank is its height in the tree; rank 0, the root, stands above them all.
TreeNode binary_tree_node(std::int64_t rank, std::int64_t ranks) {
  TreeNode node;
  if (rank == 0) {
    if (ranks > 1) {
      const auto top = std::bit_floor(static_cast<std::uint64_t>(ranks - 1));
      node.children = {-1, static_cast<std::int64_t>(top)};
    }
    return node;
  }
  const std::int64_t bit = rank & -rank;
  node.parent = (rank ^ bit) | (bit << 1);
  if (node.parent >= ranks) node.parent = rank ^ bit;
  std::int64_t low = bit >> 1;
  if (low == 0) return node;
  node.children[0] = rank - low;
  // Where the right half is cut off by the number of ranks, its highest node that is there moves
  // up.
  while (low > 0 && rank + low >= ranks) low >>= 1;
  if (low > 0) node.children[1] = rank + low;
  return node;
}

}  // namespace

std::int64_t log2_ceil(std::int64_t n) {
  return static_cast<std::int64_t>(std::bit_width(static_cast<std::uint64_t>(n - 1)));
}

TreeNode double_tree_node(int tree, std::int64_t rank, std::int64_t ranks) {
  if (tree == 0) return binary_tree_node(rank, ranks);
  // The second tree is the first one mirrored, or where that would keep inner nodes inner (odd n),
  // shifted by one.
  const bool shifted = ranks % 2 == 1;
  const auto there = [&](std::int64_t r) {
    return shifted ? (r - 1 + ranks) % ranks : ranks - 1 - r;
  };
  const auto back = [&](std::int64_t r) {
    if (r < 0) return r;
    return shifted ? (r + 1) % ranks : ranks - 1 - r;
  };
  TreeNode node = binary_tree_node(there(rank), ranks);
  node.parent = back(node.parent);
  for (std::int64_t& child : node.children) child = back(child);
  return node;
}

std::int64_t double_tree_height(std::int64_t ranks) {
  // The left spine below the root's child is complete: from the highest power of two down to 1.
  return ranks < 2 ? 0 : log2_ceil(ranks);
}

}  // namespace lockstep::sim
