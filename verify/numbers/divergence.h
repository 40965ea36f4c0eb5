// Where values that ought to be equal on all ranks begin to differ.
#pragma once

#include <cstdint>
#include <vector>

#include "verify/context.h"
#include "verify/numbers/sync_calls.h"
#include "verify/numbers/value_table.h"

namespace lockstep::verify {

// Which ranks hold the same value.
struct ValueClasses {
  // Rank indices by equal value: the largest class first, then the one of the lowest rank.
  std::vector<std::vector<std::uint32_t>> classes;

  bool differ() const { return classes.size() > 1; }
  // Those outside of the largest class, where that is more than half of all; else nobody.
  std::vector<std::uint32_t> minority() const;
};

// Compares a row's hashes; where they were not recorded its norms, which differ when they are
// further apart than the order of summation can make them (equal norms are taken for equal values).
// Ranks that recorded neither are left out. O(readings log readings).
ValueClasses classes_of(const trace::Run& run, const ValueRow& row);

struct Divergence {
  // What became of it. Ranks whose values differ before the first synchronisation and agree
  // afterwards are in order (DDP broadcasts rank 0's), and so are those that agree again and again
  // (parameters averaged every few steps).
  enum class Course : std::uint8_t {
    lasting,    // they agreed, or never did, and differ at the end
    passing,    // they agreed before and after
    initial,    // they differ at first and agree from some step on
    recurring,  // they part and agree again more than once
    one_look,   // recorded once, before the first step: nothing tells whether they are synchronised
  };
  Course course{};
  Phase phase{};
  std::int64_t n = 0;                   // the first step in which they differ
  std::vector<const ValueRow*> rows;    // those that begin to differ in it, in the program's order
  std::size_t compared = 0;             // rows of this phase that ranks could compare in step n
  std::vector<std::uint32_t> culprits;  // rank indices: the minority, where every row has one
  // How far it spread: in the last step with such values, so many of them differ.
  std::int64_t last_n = 0;
  std::size_t last_differ = 0;
  std::size_t last_compared = 0;
};

// One divergence for each course that some values of the phase take. Values marked as sharded are
// left out. O(readings log ranks).
std::vector<Divergence> find_divergences(const trace::Run& run, const ValueTable& table,
                                         Phase phase);

// "rank 1 against ranks 0, 2-4".
std::string sides_words(const trace::Run& run, const ValueRow& row);

// Values that differ between ranks, in words: the finding of gradients, optimiser values,
// parameters or buffers that differ. For parameters the rule says what is known of the reason:
// param-divergence; unsynchronised-step where the calls show no synchronisation before the update;
// rank-local-decision where the synchronised gradients of that step were equal.
Cause explain_divergence(const Context& context, const ValueTable& table, const SyncCalls& calls,
                         const Divergence& d);

}  // namespace lockstep::verify
