// How long a collective takes when nothing else uses its links: one formula per operation and
// algorithm, each with its source. docs/simulate.md shows the same table.
//
// Formulas are evaluated as exact fractions and rounded to a picosecond once. The message level
// (sim/messages/message_level.h) must give the same picosecond.
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

// The longest path through a collective's messages, on one level of links: the messages that follow
// each other, the bytes that they carry, and the bytes that are reduced on the way.
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
  // n ranks, B bytes, a = alpha, b = 1/beta, g = 1/gamma, s segments, k ranks on each of N nodes, h
  // the height of the trees; a prime marks the inner level.
  std::string_view text;
  std::string_view source;
  Path (*path)(const Collective&);
};

// One for each operation and algorithm: the table of docs/simulate.md.
std::span<const Formula> formulas();
// nullptr where the algorithm does not carry the operation. One-tensor forms count as the list
// form: all_gather_into_tensor as all_gather, and so on.
const Formula* find_formula(trace::Op op, Algorithm algorithm);

// Σ hops·a + bytes·b + reduced·g, exactly, in picoseconds.
Rational exact_time(const Path& path, const Links& links);

// The time of a collective. Errors: check()'s; a time beyond the range of the clock (106 days).
Result<Picos> closed_form(const Collective& collective, const Links& links);

// The default algorithms.

// What Gloo uses by default, whatever the size: a ring for all_reduce, all_gather and
// reduce_scatter (allreduce.cc: ring by default), a binomial tree for broadcast
// (broadcast.cc), a message for each pair for all_to_all, gather and scatter, dissemination for
// barrier (barrier.cc). For reduce a binomial tree, although Gloo's goes around a ring and gathers
// at the root. Empty: not modelled.
std::optional<Algorithm> default_algorithm(trace::Op op);

// How long a call over `ranks` ranks takes by default_algorithm() and the closed form. One rank
// alone takes no time. Errors: an operation that is not modelled; closed_form()'s.
Result<Picos> default_time(trace::Op op, std::int64_t ranks, Bytes bytes, const LinkCost& link);

}  // namespace lockstep::sim
