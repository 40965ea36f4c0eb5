#include "sim/collectives/collective.h"

#include <array>
#include <bit>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "sim/collectives/closed_form.h"

namespace lockstep::sim {
namespace {

constexpr std::array kNames = {
    std::pair(Algorithm::ring, std::string_view("ring")),
    std::pair(Algorithm::double_binary_tree, std::string_view("double_binary_tree")),
    std::pair(Algorithm::recursive_doubling, std::string_view("recursive_doubling")),
    std::pair(Algorithm::halving_doubling, std::string_view("halving_doubling")),
    std::pair(Algorithm::hierarchical, std::string_view("hierarchical")),
    std::pair(Algorithm::nvls, std::string_view("nvls")),
    std::pair(Algorithm::direct, std::string_view("direct")),
    std::pair(Algorithm::binomial, std::string_view("binomial")),
    std::pair(Algorithm::chain, std::string_view("chain")),
};

// The algorithms that carry `op`: "ring, hierarchical and direct".
std::string carriers(trace::Op op) {
  std::vector<std::string> names;
  for (const Formula& formula : formulas())
    if (formula.op == op) names.emplace_back(algorithm_name(formula.algorithm));
  return join_and(names);
}

// Partners at distance 1, 2, 4 exist for every rank only among 2^k ranks. The barrier's
// dissemination wraps around instead, and so takes any number.
bool needs_power_of_two(const Collective& collective) {
  return collective.op != trace::Op::barrier &&
         (collective.algorithm == Algorithm::recursive_doubling ||
          collective.algorithm == Algorithm::halving_doubling);
}

}  // namespace

std::string_view algorithm_name(Algorithm algorithm) {
  for (const auto& [value, name] : kNames)
    if (value == algorithm) return name;
  return "";
}

std::optional<Algorithm> algorithm_named(std::string_view name) {
  for (const auto& [value, known] : kNames)
    if (known == name) return value;
  return std::nullopt;
}

trace::Op plain_op(trace::Op op) {
  switch (op) {
    case trace::Op::all_gather_into_tensor:
      return trace::Op::all_gather;
    case trace::Op::reduce_scatter_tensor:
      return trace::Op::reduce_scatter;
    case trace::Op::all_to_all_single:
      return trace::Op::all_to_all;
    case trace::Op::recv:
      return trace::Op::send;
    default:
      return op;
  }
}

Status check(const Collective& collective, const Links& links) {
  const std::string op(trace::op_name(collective.op));
  const std::string algorithm(algorithm_name(collective.algorithm));
  const std::string ranks = std::to_string(collective.ranks);
  if (find_formula(collective.op, collective.algorithm) == nullptr) {
    const std::string known = carriers(collective.op);
    return Error{fmt::format("no {} by {}", op, algorithm),
                 {},
                 known.empty() ? "this operation is not simulated"
                               : fmt::format("{} goes by {}", op, known)};
  }
  if (collective.ranks < 2 || collective.ranks > kMaxRanks) {
    return Error{fmt::format("{} cannot do a collective",
                             collective.ranks < 0 ? fmt::format("{} ranks", collective.ranks)
                                                  : plural(collective.ranks, "rank")),
                 {},
                 fmt::format("give 2 to {}", plural(kMaxRanks, "rank"))};
  }
  if (collective.op == trace::Op::send && collective.ranks != 2)
    return Error{fmt::format("a send has 2 ranks, not {}", ranks), {}, "give 2 ranks"};
  if (needs_power_of_two(collective) &&
      !std::has_single_bit(static_cast<std::uint64_t>(collective.ranks))) {
    return Error{fmt::format("{} needs a power of two, and {} ranks are none", algorithm, ranks),
                 {},
                 fmt::format("take ring, or {} ranks",
                             std::bit_floor(static_cast<std::uint64_t>(collective.ranks)))};
  }
  if (collective.segments < 1 || collective.segments > kMaxSegments) {
    return Error{fmt::format("{} segments cannot be sent", collective.segments),
                 {},
                 fmt::format("give 1 to {} segments", kMaxSegments)};
  }
  if (collective.algorithm == Algorithm::hierarchical &&
      (collective.ranks_per_node < 1 || collective.ranks % collective.ranks_per_node != 0)) {
    return Error{fmt::format("{} ranks are not divisible into nodes of {}", ranks,
                             collective.ranks_per_node),
                 {},
                 "give ranks that are a multiple of the ranks per node"};
  }
  const std::size_t levels = collective.algorithm == Algorithm::hierarchical ? 2 : 1;
  if (links.size() != levels) {
    return Error{fmt::format("{} uses {} of links, and the costs of {} are given", algorithm,
                             plural(levels, "level"), links.size()),
                 {},
                 levels == 2 ? "give those inside a node first, then those between nodes"
                             : "give the costs of one level"};
  }
  for (const LinkCost& link : links) {
    if (link.beta.bits_per_second <= 0 || (link.gamma && link.gamma->bits_per_second <= 0))
      return Error{"a link without bandwidth", {}, "give a bandwidth above zero"};
  }
  return Status::ok();
}

double bus_factor(trace::Op op, std::int64_t ranks) {
  const auto n = static_cast<double>(ranks);
  switch (op) {
    // Every byte is sent twice: it is reduced to its owner, then gathered.
    case trace::Op::all_reduce:
      return 2 * (n - 1) / n;
    // All but one's own n-th of the buffer.
    case trace::Op::all_gather:
    case trace::Op::all_gather_into_tensor:
    case trace::Op::reduce_scatter:
    case trace::Op::reduce_scatter_tensor:
    case trace::Op::all_to_all:
    case trace::Op::all_to_all_single:
    case trace::Op::gather:
    case trace::Op::scatter:
      return (n - 1) / n;
    default:
      return 1;
  }
}

namespace {

// NCCL's binary tree: the lowest set bit of a rank is its height; rank 0, the root, is above them
// all. For 8 ranks: 0 -> 4; 4 -> 2, 6; 2 -> 1, 3; 6 -> 5, 7.
TreeNode binary_tree_node(std::int64_t rank, std::int64_t ranks) {
  TreeNode node;
  if (rank == 0) {
    if (ranks > 1) {
      // The root has one child: the highest power of two below n.
      const auto top = std::bit_floor(static_cast<std::uint64_t>(ranks - 1));
      node.children = {-1, static_cast<std::int64_t>(top)};
    }
    return node;
  }
  const std::int64_t bit = rank & -rank;
  // Clear the lowest bit and set the next: 5 (101) -> 6 (110). Where that rank does not exist, the
  // parent is the one on the other side: 5 of 6 ranks -> 4.
  node.parent = (rank ^ bit) | (bit << 1);
  if (node.parent >= ranks) node.parent = rank ^ bit;
  std::int64_t low = bit >> 1;
  if (low == 0) return node;
  node.children[0] = rank - low;
  // Where n cuts off the right half, its highest node that exists becomes the child: rank 4 of 6
  // has the children 2 and, as 6 does not exist, 5.
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
  // The second tree is the first one mirrored. For odd n a mirrored rank has the same parity, and
  // inner nodes would stay inner nodes; there it is shifted by one instead.
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
  // The left spine below the root's only child is complete: its heights go from the highest power
  // of two down to 1.
  return ranks < 2 ? 0 : log2_ceil(ranks);
}

}  // namespace lockstep::sim
