// Finds where values that must be equal on all ranks begin to differ.
#pragma once

#include <cstdint>
#include <vector>

#include "verify/context.h"
#include "verify/numbers/sync_calls.h"
#include "verify/numbers/value_table.h"

namespace lockstep::verify {

// The ranks grouped by the value that they hold.
struct ValueClasses {
  // Rank indices by equal value: the largest class first, then by lowest rank.
  std::vector<std::vector<std::uint32_t>> classes;

  bool differ() const { return classes.size() > 1; }
  // The ranks outside the largest class, if that holds more than half of all; otherwise none.
  std::vector<std::uint32_t> minority() const;
};

// Groups a row's ranks by hash; without hashes by norm. Norms differ if they are further apart than
// the order of summation can explain; equal norms are taken for equal values. Ranks that recorded
// neither are left out. O(readings log readings).
ValueClasses classes_of(const trace::Run& run, const ValueRow& row);

struct Divergence {
  // How the difference develops. It is no fault if values differ only before the first
  // synchronisation (DDP then broadcasts rank 0's), or if they agree again repeatedly (parameters
  // that are averaged every few steps).
  enum class Pattern : std::uint8_t {
    lasting,    // they differ at the end
    passing,    // they agree before and after
    initial,    // they differ at first and agree from some step on
    recurring,  // they differ and agree again more than once
    one_look,   // recorded once, before the first step: it is unknown whether they are synchronised
  };
  Pattern pattern{};
  Phase phase{};
  std::int64_t n = 0;                   // the first step in which they differ
  std::vector<const ValueRow*> rows;    // those that begin to differ in step n, in program order
  std::size_t compared = 0;             // rows of this phase that could be compared in step n
  std::vector<std::uint32_t> culprits;  // rank indices: the minority, if every row has one
  // How far it spread: the last step with such values, and how many of them differ there.
  std::int64_t last_n = 0;
  std::size_t last_differ = 0;
  std::size_t last_compared = 0;
};

// One divergence for each pattern that occurs among the values of the phase. Sharded values are
// left out. O(readings log ranks).
std::vector<Divergence> find_divergences(const trace::Run& run, const ValueTable& table,
                                         Phase phase);

// "rank 1 against ranks 0, 2-4".
std::string describe_sides(const trace::Run& run, const ValueRow& row);

// Explains values that differ between ranks: gradients, optimizer values, parameters or buffers.
// For parameters the rule says what is known about the reason: unsynchronised-step where the calls
// show no synchronisation before the update; rank-local-decision where the synchronised gradients
// of that step were equal; otherwise param-divergence.
Cause explain_divergence(const Context& context, const ValueTable& table, const SyncCalls& calls,
                         const Divergence& d);

}  // namespace lockstep::verify
