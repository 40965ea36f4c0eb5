// Causes: what the analyses of one verify() found, with what follows from a cause hung below it, so
// that one cause is one finding.
//
// The order of the calls is that of find_causes in verify.cc: deviations first, then what the
// wait-for graph shows, then deaths and exceptions. Each cost is per cause and rank concerned:
// there are few causes, since each stands for all ranks and calls that it explains.
#pragma once

#include <cstdint>
#include <vector>

#include "verify/blocking/wait_graph.h"
#include "verify/context.h"
#include "verify/matching/group_divergence.h"

namespace lockstep::verify {

class Causes {
 public:
  // Keeps a reference to `context`.
  explicit Causes(const Context& context) : context_(context) {}

  void add(Cause cause) { causes_.push_back(std::move(cause)); }
  void add(std::vector<Cause> causes);

  // Deviations of the same ranks in other groups, or later, follow from their first one.
  void fold_deviations();

  // Calls that part in groups whose names are exchanged follow from that. False: there are none,
  // and nothing was added.
  bool add_above(ExchangedNames& names);

  // A part of the wait-for graph: below the deviation that led to it, else a cause of its own.
  void add_wait(const WaitCause& wait);

  // The same call left out, or made too often, in the same place of several groups of one size: the
  // tensor-parallel ranks of a replica that skip a step of their data-parallel groups. One cause.
  void merge_sister_groups();

  // Deaths that no cause speaks of yet.
  void add_deaths();

  // Exceptions: below the cause that brought them about, else causes of their own.
  void add_exceptions();

  // Wrong values: below calls that paired unlike tensors at or before that step, else causes of
  // their own.
  void add_below_matching(std::vector<Cause> numbers);

  bool empty() const { return causes_.empty(); }

  // The findings; leaves nothing behind.
  std::vector<Finding> take();

 private:
  bool leads_to(const Cause& cause, const WaitCause& wait) const;
  // Puts a rank's exception below the cause in which it is a deviant or a victim.
  bool hang_below(std::uint32_t rank);

  const Context& context_;
  std::vector<Cause> causes_;
  std::vector<std::uint32_t> explained_;  // rank indices that a cause speaks of
};

}  // namespace lockstep::verify
