// Finds where values that must be equal on all ranks begin to differ, and explains why.
#pragma once

#include <cstdint>
#include <vector>

#include "verify/context.h"
#include "verify/numbers/sync_calls.h"
#include "verify/numbers/value_table.h"

namespace lockstep::verify {

struct Divergence {
  // How the difference develops. It is not a fault if values differ only before the first
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

// Explains values that differ between ranks: gradients, optimizer values, parameters or buffers.
// For parameters the rule says what is known about the reason: unsynchronised-step where the calls
// show no synchronisation before the update; rank-local-decision where the synchronised gradients
// of that step were equal; otherwise param-divergence.
Cause explain_divergence(const Context& context, const ValueTable& table, const SyncCalls& calls,
                         const Divergence& d);

}  // namespace lockstep::verify
