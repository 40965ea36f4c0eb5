// The trees that messages take, as arithmetic on ranks: nothing is stored, whatever n is.
#pragma once

#include <array>
#include <cstdint>

namespace lockstep::sim {

// ceil(log2 n) for n >= 1: the steps in which a message that doubles its reach gets to n ranks.
std::int64_t log2_ceil(std::int64_t n);

struct TreeNode {
  std::int64_t parent = -1;                         // -1: the root
  std::array<std::int64_t, 2> children = {-1, -1};  // -1: none
};

// Place of `rank` in tree 0 or 1 of NCCL's two trees over n ranks (graph/trees.cc, ncclGetBtree and
// ncclGetDtree): an inner node of one is a leaf of the other, so that both halves of a buffer
// together keep every rank equally busy. O(log n).
TreeNode double_tree_node(int tree, std::int64_t rank, std::int64_t ranks);

// Hops from the deepest leaf to the root, the same in both trees. O(log n).
std::int64_t double_tree_height(std::int64_t ranks);

}  // namespace lockstep::sim
