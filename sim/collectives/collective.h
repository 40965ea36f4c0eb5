// What a collective is to the simulator, and what carries it: an operation over n ranks, an
// algorithm, and the cost of a hop on each level of links.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/quantities.h"
#include "base/result.h"
#include "trace/signature.h"

namespace lockstep::sim {

enum class Algorithm : std::uint8_t {
  ring,                // neighbours pass chunks around
  double_binary_tree,  // two trees, each with half the buffer, pipelined in segments
  recursive_doubling,  // partners at distance 1, 2, 4, …
  halving_doubling,    // Rabenseifner: halve while reducing, double while gathering
  hierarchical,        // inside nodes, between nodes, inside nodes; rings on both levels
  nvls,                // the switch reduces and multicasts (NVLink SHARP)
  direct,              // everybody to everybody, one message at a time; send to receive
  binomial,            // a tree that doubles what is reached in each step
  chain,               // from neighbour to neighbour, pipelined in segments
};

// "double_binary_tree"; the names of the command line.
std::string_view algorithm_name(Algorithm algorithm);
std::optional<Algorithm> algorithm_named(std::string_view name);

// The cost of a message of s bytes on one level of links: alpha + s/beta, and where the receiver
// reduces, + s/gamma.
struct LinkCost {
  Picos alpha;
  Bandwidth beta;
  std::optional<Bandwidth> gamma;  // nothing: reducing takes no time of its own
};

// `bytes` is the whole buffer, as nccl-tests counts: what every rank has after an all-gather and
// before a reduce-scatter; what a rank gives to an all-to-all.
struct Collective {
  trace::Op op = trace::Op::all_reduce;
  Algorithm algorithm = Algorithm::ring;
  std::int64_t ranks = 2;
  Bytes bytes;
  std::int64_t ranks_per_node = 1;  // hierarchical: those that share the inner level
  std::int64_t segments = 1;        // chain, double_binary_tree: messages that a hop is cut into
};

// Links, innermost level first: one, or for hierarchical algorithms two (inside, between nodes).
using Links = std::vector<LinkCost>;

inline constexpr std::int64_t kMostRanks = std::int64_t{1} << 20;
inline constexpr std::int64_t kMostSegments = std::int64_t{1} << 20;

// The forms that take one tensor cost what those do that take a list: all_gather_into_tensor gives
// all_gather, and so on; recv gives send.
trace::Op plain_op(trace::Op op);

// Errors, with what to do instead: no such algorithm for the operation, ranks below 2 or above
// kMostRanks, no power of two where one is needed, ranks that the nodes do not divide, segments
// below 1.
Status check(const Collective& collective, const Links& links);

// Bytes on the busiest link over bytes of the buffer, so that busbw = bytes/time · this does not
// depend on n: nccl-tests, doc/PERFORMANCE.md.
double bus_factor(trace::Op op, std::int64_t ranks);

// The trees that messages take, as arithmetic on ranks: nothing is stored, whatever n is.

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
