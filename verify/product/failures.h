// What goes wrong in a situation, and for which choice of the ranks: a divergence, or a cycle.
//
// Both searches change as few ranks as possible from what is usual (assignments.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "verify/product/assignments.h"
#include "verify/product/model.h"
#include "verify/product/order_graph.h"

namespace lockstep::verify {

struct Failure {
  Situation situation;
  std::vector<ProductOption> options;  // by rank
  std::vector<trace::Rank> differing;  // sorted
  std::size_t cost = 0;                // ranks that differ, then their conditions that do
  std::optional<Cycle> cycle;          // nothing: a divergence
};

// What each rank does under its option; kNothing: not recorded.
std::vector<std::uint32_t> sequences_under(const ProductModel& model, const Situation& situation,
                                           const std::vector<ProductOption>& options);

// The cheapest of a situation in which some channel disagrees. Nothing: for some rank no option was
// recorded, or what was recorded of the others agrees.
std::optional<Failure> find_divergence(const ProductModel& model, const Situation& situation);

struct DeadlockSearch {
  std::size_t instances = 0;       // that one order contains
  bool one_order = true;           // all do
  bool complete = true;            // false: given up at the bound
  std::optional<Failure> failure;  // the fewest ranks that close a cycle
};

// Where all channels agree. `device`: kernels run one by one (order_graph.h). `budget`: steps that
// the search for cycles may take; what it takes is subtracted.
DeadlockSearch find_deadlock(const ProductModel& model, const Situation& situation,
                             const Evaluation& evaluation, bool device, std::uint64_t& budget);

// Exceptions in the traces of a derivation: which of them a rank may come to.

// An allowed assignment under which the rank does what its trace of a history did, to the
// exception.
struct PossibleRaise {
  std::uint32_t history = 0;
  std::int32_t rank = 0;
  std::int64_t step = 0;
  Assignment assignment;
};

struct RaiseSearch {
  std::optional<PossibleRaise> first;  // the earliest
  // Exceptions that no allowed assignment reproduces as they were recorded, although they may come
  // about in another way: after the same condition in the step before, or under the same one.
  std::vector<std::string> unknown;
};

RaiseSearch find_raise(const ProductModel& model);

}  // namespace lockstep::verify
