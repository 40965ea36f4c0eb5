// A collective as the simulator sees it: an operation over n ranks, an algorithm, and the cost of a
// hop on each level of links.
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
  direct,              // every rank to every other, one message at a time; a send to its receiver
  binomial,            // a tree; the ranks that have the data double in each step
  chain,               // from neighbour to neighbour, pipelined in segments
};

// The names of the command line: "double_binary_tree".
std::string_view algorithm_name(Algorithm algorithm);
std::optional<Algorithm> algorithm_named(std::string_view name);

// The cost of a message of s bytes on one level of links: alpha + s/beta, plus s/gamma where the
// receiver reduces (Hockney's model).
struct LinkCost {
  Picos alpha;
  Bandwidth beta;
  std::optional<Bandwidth> gamma;  // empty: reducing takes no time of its own
};

// `bytes` is the whole buffer, as nccl-tests counts: what every rank has after an all-gather or
// before a reduce-scatter, and what one rank gives to an all-to-all.
struct Collective {
  trace::Op op = trace::Op::all_reduce;
  Algorithm algorithm = Algorithm::ring;
  std::int64_t ranks = 2;
  Bytes bytes;
  std::int64_t ranks_per_node = 1;  // hierarchical: ranks that share the inner level
  std::int64_t segments = 1;        // chain, double_binary_tree: messages that a hop is split into
};

// Links, innermost level first: one level, or two (inside, between nodes) for hierarchical
// algorithms.
using Links = std::vector<LinkCost>;

inline constexpr std::int64_t kMaxRanks = std::int64_t{1} << 20;
inline constexpr std::int64_t kMaxSegments = std::int64_t{1} << 20;

// The list form of an operation that has a one-tensor form, since both cost the same:
// all_gather_into_tensor gives all_gather, and so on; recv gives send. Others are returned
// unchanged.
trace::Op plain_op(trace::Op op);

// Errors, with what to do instead: the algorithm does not carry the operation, ranks below 2 or
// above kMaxRanks, ranks that are not a power of two where the algorithm needs one or not a
// multiple of the ranks per node, segments out of range, another number of link levels than the
// algorithm uses, a link without bandwidth.
Status check(const Collective& collective, const Links& links);

// Bytes on the busiest link over bytes of the buffer. busbw = bytes/time · bus_factor does not
// depend on the number of ranks (nccl-tests, doc/PERFORMANCE.md).
double bus_factor(trace::Op op, std::int64_t ranks);

// The trees that messages follow, computed from rank numbers: nothing is stored, whatever n is.

// ceil(log2 n) for n >= 1: the steps after which a message has reached n ranks, if the ranks that
// have it double in each step.
std::int64_t log2_ceil(std::int64_t n);

struct TreeNode {
  std::int64_t parent = -1;                         // -1: the root
  std::array<std::int64_t, 2> children = {-1, -1};  // -1: none
};

// Parent and children of `rank` in tree 0 or 1 of NCCL's two trees over n ranks (graph/trees.cc,
// ncclGetBtree and ncclGetDtree). An inner node of one tree is a leaf of the other, so the two
// halves of a buffer together keep every rank equally busy. O(log n).
TreeNode double_tree_node(int tree, std::int64_t rank, std::int64_t ranks);

// Hops from the deepest leaf to the root; the same in both trees. O(log n).
std::int64_t double_tree_height(std::int64_t ranks);

}  // namespace lockstep::sim
