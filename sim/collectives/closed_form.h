// How long a collective takes when nothing else uses its links: one formula per operation and
// algorithm, in a table with its source. docs/simulate.md shows the same table.
//
// Evaluated as exact fractions and rounded to a picosecond once. The message level
// (sim/messages/message_level.h) has to give the same picosecond.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/quantities.h"
#include "base/rational.h"
#include "base/result.h"
#include "sim/collectives/collective.h"

namespace lockstep::sim {

// What the longest path through the messages has on one level: messages that follow each other,
// bytes that they carry, bytes that are reduced on the way.
struct PathTerm {
  std::size_t level = 0;  // into Links
  Rational hops;
  Rational bytes;
  Rational reduced;
};
using Path = std::vector<PathTerm>;

struct Formula {
  trace::Op op;
  Algorithm algorithm;
  // n ranks, B bytes, a = alpha, b = 1/beta, g = 1/gamma, s segments, k ranks in each of N nodes,
  // h the height of the trees; primes: the inner level.
  std::string_view text;
  std::string_view source;
  Path (*path)(const Collective&);
};

std::span<const Formula> formulas();
// nullptr where the algorithm does not carry the operation. all_gather_into_tensor counts as
// all_gather, and so on.
const Formula* find_formula(trace::Op op, Algorithm algorithm);

// Σ hops·a + bytes·b + reduced·g, exactly, in picoseconds.
Rational exact_time(const Path& path, const Links& links);

// Of a collective that check() accepts. Errors: check()'s; a time that does not fit (106 days).
Result<Picos> closed_form(const Collective& collective, const Links& links);

// Which algorithm carries an operation where nobody names one.

// What Gloo takes, by its code, whatever the size: all_reduce, all_gather and reduce_scatter a ring
// (allreduce.cc: ring unless told otherwise), broadcast a binomial tree (broadcast.cc), all_to_all,
// gather and scatter a message for each pair, barrier dissemination (barrier.cc). And reduce a
// binomial tree, where Gloo's goes around a ring and gathers at the root. Nothing: not simulated.
std::optional<Algorithm> default_algorithm(trace::Op op);

// How long a call takes over `ranks` ranks by default_algorithm(), by the closed form. One rank
// alone takes no time. Errors: an operation that is not simulated, and closed_form()'s.
Result<Picos> default_time(trace::Op op, std::int64_t ranks, Bytes bytes, const LinkCost& link);

}  // namespace lockstep::sim
