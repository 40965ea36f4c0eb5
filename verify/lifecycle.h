// Checks of a single operation: every asynchronous call is waited for, and its buffer is not
// accessed before.
#pragma once

#include <cstdint>
#include <vector>

#include "verify/context.h"

namespace lockstep::verify {

// Finds asynchronous operations that a rank which ended cleanly never waited for. In c10d traces
// only where a peer waited for the same call, because not every recorder sees waits. In MPI every
// request must be waited for (or tested, or freed) before MPI_Finalize, messages included.
// O(calls).
std::vector<Cause> check_lifecycle(const Context& context);

// Finds buffers that were written between the issue of an asynchronous operation and its wait, or
// read where the operation fills them. One finding per operation and source location. O(events).
std::vector<Cause> check_buffers(const Context& context);

// Calls from one source location with the same defect, which a loop repeats on every rank: one
// finding.
struct CallSite {
  static constexpr std::size_t kEvidenceShown = 4;

  CallRef first;
  std::vector<std::uint32_t> ranks;  // rank indices, ascending
  std::vector<Evidence> evidence;
  std::uint64_t count = 0;

  // Counts a call; call it with ascending ranks. True where the caller should add evidence: for the
  // first call of each of the first ranks.
  bool add(CallRef call);
};

// A cause at the site's first call, complete except for its message; it blocks nobody. O(ranks).
Cause cause_at(const Context& context, RuleId rule, CallSite site);

// Sorts by group, sequence number and message. Sites are collected in the order of interned ids,
// which may differ between runs of this program.
void sort_by_location(std::vector<Cause>& causes);

}  // namespace lockstep::verify
