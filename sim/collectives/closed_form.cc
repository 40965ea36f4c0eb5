#include "sim/collectives/closed_form.h"

#include <array>

#include <fmt/format.h>

#include "base/text.h"
#include "sim/collectives/collective.h"

namespace lockstep::sim {
namespace {

constexpr Int128 kPicosPerSecond = 1'000'000'000'000;

// Paths, one per row of kFormulas below. A term is {level, hops, bytes, reduced bytes}.
//
// The whole buffer.
Rational size_of(const Collective& c) { return c.bytes.value; }
// (n-1)/n of the buffer.
Rational all_but_one(const Collective& c) { return size_of(c) * Rational(c.ranks - 1, c.ranks); }

// Chunks of B/n: n-1 steps reduce, n-1 steps gather.
Path ring_all_reduce(const Collective& c) {
  return {{0, 2 * (c.ranks - 1), all_but_one(c) * 2, all_but_one(c)}};
}
Path around_gathering(const Collective& c) { return {{0, c.ranks - 1, all_but_one(c), 0}}; }
Path around_reducing(const Collective& c) {
  return {{0, c.ranks - 1, all_but_one(c), all_but_one(c)}};
}

// Each tree carries half the buffer in s segments of B/(2s). The first segment goes h hops up and h
// down; the s-1 others follow it one hop apart. Reducing happens on the way up only.
Path tree_all_reduce(const Collective& c) {
  const std::int64_t height = double_tree_height(c.ranks);
  const Rational segment = size_of(c) * Rational(1, 2 * c.segments);
  const std::int64_t hops = 2 * height + c.segments - 1;
  return {{0, hops, segment * hops, segment * (height + c.segments - 1)}};
}

// The whole buffer in each of log2 n exchanges.
Path doubling_all_reduce(const Collective& c) {
  const Rational all = size_of(c) * log2_ceil(c.ranks);
  return {{0, log2_ceil(c.ranks), all, all}};
}
// What is exchanged doubles: B/n + 2B/n + … = (n-1)/n B. Halving is the same backwards.
Path doubling_gathering(const Collective& c) {
  return {{0, log2_ceil(c.ranks), all_but_one(c), 0}};
}
Path halving_reducing(const Collective& c) {
  return {{0, log2_ceil(c.ranks), all_but_one(c), all_but_one(c)}};
}
Path halving_all_reduce(const Collective& c) {
  return {{0, 2 * log2_ceil(c.ranks), all_but_one(c) * 2, all_but_one(c)}};
}

// The part of a hierarchical collective inside a node and the part between nodes, where each rank
// and its partners hold the same k-th of the buffer.
struct Halves {
  Collective inside, between;
};
Halves split(const Collective& c) {
  Halves halves{c, c};
  halves.inside.ranks = c.ranks_per_node;
  halves.between.ranks = c.ranks / c.ranks_per_node;
  return halves;
}
// A ring over c.ranks ranks, `rounds` times around: 2 for an all-reduce, of which only the first
// reduces.
PathTerm ring_term(std::size_t level, const Collective& c, const Rational& bytes, int rounds,
                   bool reduces) {
  const Rational passed = bytes * Rational(c.ranks - 1, c.ranks);
  return {level, rounds * (c.ranks - 1), passed * rounds, reduces ? passed : Rational()};
}
Path hierarchical_path(const Collective& c, int rounds, bool reduces) {
  const Halves halves = split(c);
  return {
      ring_term(0, halves.inside, size_of(c), rounds, reduces),
      ring_term(1, halves.between, size_of(c) * Rational(1, c.ranks_per_node), rounds, reduces)};
}
Path hierarchical_all_reduce(const Collective& c) { return hierarchical_path(c, 2, true); }
Path hierarchical_gathering(const Collective& c) { return hierarchical_path(c, 1, false); }
Path hierarchical_reducing(const Collective& c) { return hierarchical_path(c, 1, true); }

// One hop to the switch, which reduces, and one back.
Path switch_all_reduce(const Collective& c) { return {{0, 2, size_of(c), 0}}; }

Path binomial_broadcast(const Collective& c) {
  return {{0, log2_ceil(c.ranks), size_of(c) * log2_ceil(c.ranks), 0}};
}
Path binomial_reduce(const Collective& c) {
  const Rational all = size_of(c) * log2_ceil(c.ranks);
  return {{0, log2_ceil(c.ranks), all, all}};
}
// The first of s segments makes n-1 hops, the s-1 others arrive one hop after each other.
Path chain_broadcast(const Collective& c) {
  const std::int64_t hops = c.ranks - 2 + c.segments;
  return {{0, hops, size_of(c) * Rational(hops, c.segments), 0}};
}
Path chain_reduce(const Collective& c) {
  Path path = chain_broadcast(c);
  path[0].reduced = path[0].bytes;
  return path;
}
Path dissemination(const Collective& c) { return {{0, log2_ceil(c.ranks), 0, 0}}; }
Path one_message(const Collective& c) { return {{0, 1, size_of(c), 0}}; }

// Where each formula is from.
constexpr std::string_view kRing =
    "Patarasuk and Yuan, J. Parallel Distrib. Comput. 69(2), 2009, section 3";
constexpr std::string_view kThakur =
    "Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19(1), 2005, section 4";
constexpr std::string_view kTrees =
    "Sanders, Speck and Träff, Parallel Computing 35(12), 2009; NCCL graph/trees.cc";
constexpr std::string_view kHierarchical = "rings (Patarasuk and Yuan 2009) on each level";
constexpr std::string_view kChain =
    "Pjesivac-Grbovic et al., Cluster Computing 10(2), 2007, section 3 (Hockney's model)";
constexpr std::string_view kSwitch = "Klenk et al., ISCA 2020: in-network reduction, one shot";
constexpr std::string_view kDissemination =
    "Hensgen, Finkel and Manber, Int. J. Parallel Program. 17(1), 1988";
constexpr std::string_view kHockney = "Hockney, Parallel Computing 20(3), 1994";

constexpr std::array kFormulas = {
    Formula{trace::Op::all_reduce, Algorithm::ring, "2(n-1)a + 2(n-1)/n B b + (n-1)/n B g", kRing,
            ring_all_reduce},
    Formula{trace::Op::all_reduce, Algorithm::double_binary_tree,
            "(2h+s-1)a + (2h+s-1)/(2s) B b + (h+s-1)/(2s) B g, h = ceil(log2 n)", kTrees,
            tree_all_reduce},
    Formula{trace::Op::all_reduce, Algorithm::recursive_doubling, "log2(n) (a + B b + B g)",
            kThakur, doubling_all_reduce},
    Formula{trace::Op::all_reduce, Algorithm::halving_doubling,
            "2 log2(n) a + 2(n-1)/n B b + (n-1)/n B g", kThakur, halving_all_reduce},
    Formula{trace::Op::all_reduce, Algorithm::hierarchical,
            "2(k-1)a' + 2(k-1)/k B b' + (k-1)/k B g' + 2(N-1)a + 2(N-1)/N B/k b + (N-1)/N B/k g",
            kHierarchical, hierarchical_all_reduce},
    Formula{trace::Op::all_reduce, Algorithm::nvls, "2a + B b", kSwitch, switch_all_reduce},
    Formula{trace::Op::all_gather, Algorithm::ring, "(n-1)a + (n-1)/n B b", kRing,
            around_gathering},
    Formula{trace::Op::all_gather, Algorithm::recursive_doubling, "log2(n) a + (n-1)/n B b",
            kThakur, doubling_gathering},
    Formula{trace::Op::all_gather, Algorithm::direct, "(n-1)a + (n-1)/n B b", kThakur,
            around_gathering},
    Formula{trace::Op::all_gather, Algorithm::hierarchical,
            "(k-1)a' + (k-1)/k B b' + (N-1)a + (N-1)/N B/k b", kHierarchical,
            hierarchical_gathering},
    Formula{trace::Op::reduce_scatter, Algorithm::ring, "(n-1)a + (n-1)/n B (b + g)", kRing,
            around_reducing},
    Formula{trace::Op::reduce_scatter, Algorithm::halving_doubling, "log2(n) a + (n-1)/n B (b + g)",
            kThakur, halving_reducing},
    Formula{trace::Op::reduce_scatter, Algorithm::direct, "(n-1)a + (n-1)/n B (b + g)", kThakur,
            around_reducing},
    Formula{trace::Op::reduce_scatter, Algorithm::hierarchical,
            "(k-1)a' + (k-1)/k B (b' + g') + (N-1)a + (N-1)/N B/k (b + g)", kHierarchical,
            hierarchical_reducing},
    Formula{trace::Op::all_to_all, Algorithm::direct, "(n-1)(a + B/n b)", kThakur,
            around_gathering},
    Formula{trace::Op::broadcast, Algorithm::binomial, "ceil(log2 n) (a + B b)", kThakur,
            binomial_broadcast},
    Formula{trace::Op::broadcast, Algorithm::chain, "(n-2+s)(a + B/s b)", kChain, chain_broadcast},
    Formula{trace::Op::reduce, Algorithm::binomial, "ceil(log2 n) (a + B b + B g)", kThakur,
            binomial_reduce},
    Formula{trace::Op::reduce, Algorithm::chain, "(n-2+s)(a + B/s (b + g))", kChain, chain_reduce},
    Formula{trace::Op::gather, Algorithm::direct, "(n-1)(a + B/n b)", kHockney, around_gathering},
    Formula{trace::Op::scatter, Algorithm::direct, "(n-1)(a + B/n b)", kHockney, around_gathering},
    Formula{trace::Op::barrier, Algorithm::recursive_doubling, "ceil(log2 n) a", kDissemination,
            dissemination},
    Formula{trace::Op::send, Algorithm::direct, "a + B b", kHockney, one_message},
};

Rational picos_per_byte(Bandwidth bandwidth) {
  return {8 * kPicosPerSecond, bandwidth.bits_per_second};
}

}  // namespace

std::span<const Formula> formulas() { return kFormulas; }

const Formula* find_formula(trace::Op op, Algorithm algorithm) {
  for (const Formula& formula : kFormulas)
    if (formula.op == plain_op(op) && formula.algorithm == algorithm) return &formula;
  return nullptr;
}

Rational exact_time(const Path& path, const Links& links) {
  Rational total;
  for (const PathTerm& term : path) {
    const LinkCost& link = links[term.level];
    total = total + term.hops * link.alpha.value + term.bytes * picos_per_byte(link.beta);
    if (link.gamma) total = total + term.reduced * picos_per_byte(*link.gamma);
  }
  return total;
}

Result<Picos> closed_form(const Collective& collective, const Links& links) {
  if (const Status fine = check(collective, links); !fine) return fine.error();
  const Formula* formula = find_formula(collective.op, collective.algorithm);
  const auto picos = exact_time(formula->path(collective), links).rounded();
  if (!picos || Picos{*picos}.is_forever()) {
    return Error{"it takes longer than 106 days, which no simulated clock can show",
                 {},
                 "check the units of sizes, times and bandwidths"};
  }
  return Picos{*picos};
}

std::optional<Algorithm> default_algorithm(trace::Op op) {
  switch (plain_op(op)) {
    case trace::Op::all_reduce:
    case trace::Op::all_gather:
    case trace::Op::reduce_scatter:
      return Algorithm::ring;
    case trace::Op::broadcast:
    case trace::Op::reduce:
      return Algorithm::binomial;
    case trace::Op::all_to_all:
    case trace::Op::gather:
    case trace::Op::scatter:
    case trace::Op::send:
      return Algorithm::direct;
    case trace::Op::barrier:
    case trace::Op::finalize:
      return Algorithm::recursive_doubling;
    default:
      return std::nullopt;
  }
}

Result<Picos> default_time(trace::Op op, std::int64_t ranks, Bytes bytes, const LinkCost& link) {
  const std::optional<Algorithm> algorithm = default_algorithm(op);
  if (!algorithm) {
    return Error{fmt::format("the operation {} is not simulated", trace::op_name(op)),
                 {},
                 "simulate a program without it"};
  }
  if (ranks == 1) return Picos{};
  const trace::Op priced =
      op == trace::Op::finalize ? trace::Op::barrier : op;  // it synchronises, and no more
  return closed_form({priced, *algorithm, ranks, bytes, 1, 1}, {link});
}

}  // namespace lockstep::sim
