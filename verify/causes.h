// Causes: what the analyses of one verify() found. Consequences are listed below their cause, so
// that one cause is one finding.
//
// The functions are called in the order of find_causes in verify.cc: deviations first, then the
// wait-for graph, then deaths and exceptions. Each costs O(causes · ranks concerned). There are few
// causes, because one explains all ranks and calls that it affects.
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

  // Makes later deviations of the same ranks, also in other groups, consequences of the first one.
  void fold_deviations();

  // Adds exchanged group names as the cause of deviations in these groups, which become its
  // consequences. False: there are none, and nothing was added.
  bool add_exchanged_names(ExchangedNames& names);

  // Whether a deviation that was added led to this part of the wait-for graph.
  bool explain(const WaitCause& wait) const;

  // Adds a part of the wait-for graph: as a consequence of the deviation that led to it, otherwise
  // as a cause of its own.
  void add_wait(const WaitCause& wait);

  // Makes one cause of the same rule at the same line of the program in several groups: the
  // tensor-parallel ranks of a replica that skip a step in each of their data-parallel groups. The
  // other groups are listed in Finding::also.
  void merge_sister_groups();

  // Adds the deaths that no cause mentions yet.
  void add_deaths();

  // Adds exceptions: as consequences of the cause that led to them, otherwise as causes of their
  // own.
  void add_exceptions();

  // Adds wrong values: as consequences of a cause that paired different tensors in the same or an
  // earlier step, otherwise as causes of their own.
  void add_wrong_values(std::vector<Cause> values);

  bool empty() const { return causes_.empty(); }

  // The findings, moved out: call it last.
  std::vector<Finding> take();

 private:
  // Whether two causes are one defect of the program, in two groups.
  bool is_sister(const Cause& a, const Cause& b) const;
  // Whether the wait follows from the cause.
  bool leads_to(const Cause& cause, const WaitCause& wait) const;
  // Makes a rank's exception a consequence of the cause that concerns the rank. False if nothing
  // explains it.
  bool attach_exception(std::uint32_t rank);

  const Context& context_;
  std::vector<Cause> causes_;
  std::vector<std::uint32_t> explained_;  // rank indices that are roots or victims of some wait
};

}  // namespace lockstep::verify
