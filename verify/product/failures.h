// Finds what can go wrong in a situation, and for which choices of the ranks: a divergence, a
// cycle, or an exception.
//
// The searches move as few ranks as possible away from the usual options (assignments.h).
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
  std::vector<trace::Rank> differing;  // those that deviate, or form the cycle; sorted
  std::size_t cost = 0;                // more for each such rank, then for each unusual condition
  std::optional<Cycle> cycle;          // nothing: a divergence
};

// By rank: the sequence under its option, or kNoSequence.
std::vector<SequenceId> sequences_under(const ProductModel& model, const Situation& situation,
                                        const std::vector<ProductOption>& options);

// The failure of least cost in a situation in which some channel disagrees. Nothing if some rank
// has no recorded option, or if the recorded ones agree.
std::optional<Failure> find_divergence(const ProductModel& model, const Situation& situation);

struct DeadlockSearch {
  std::size_t instances = 0;       // calls that complete in one order whatever the ranks choose
  bool one_order = true;           // all calls do: no deadlock
  bool complete = true;            // false: the search reached its limit
  std::optional<Failure> failure;  // a cycle of the fewest ranks
};

// For a situation in which all channels agree. `device`: kernels run one by one (order_graph.h).
// `budget`: how many steps the search for cycles may take; those that it took are subtracted.
DeadlockSearch find_deadlock(const ProductModel& model, const Situation& situation,
                             const Evaluation& evaluation, bool device, std::uint64_t& budget);

// Exceptions in the traces of a derivation: can a rank raise them in an allowed assignment?

// An allowed assignment in which the rank does what its trace of a history did, exception included.
struct PossibleRaise {
  HistoryId history;
  std::int32_t rank = 0;
  std::int64_t step = 0;
  Assignment assignment;
};

struct RaiseSearch {
  std::optional<PossibleRaise> first;  // the earliest
  // Exceptions that no allowed assignment reproduces as they were recorded. They may still be
  // possible after other steps, so the verdict cannot be `safe`.
  std::vector<std::string> unknown;
};

// Follows each recorded exception through the steps that led to it.
RaiseSearch find_raise(const ProductModel& model);

}  // namespace lockstep::verify
