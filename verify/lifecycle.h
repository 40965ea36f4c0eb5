// The life of one operation: issued, completed, waited for, its buffer left alone meanwhile.
#pragma once

#include <cstdint>
#include <vector>

#include "verify/context.h"

namespace lockstep::verify {

// Asynchronous operations that a rank which ended cleanly never waited for. In c10d traces only
// where it, or a peer in the same call, does wait for such calls: not every recorder sees waits.
// Under MPI every request must be waited for (or tested, or freed), messages included, before
// MPI_Finalize. O(calls).
std::vector<Cause> check_lifecycle(const Context& context);

// Buffers that the trace shows written (or read, where the operation fills them) between the issue
// and the wait of an asynchronous operation. One finding per operation and source place. O(events).
std::vector<Cause> check_buffers(const Context& context);

// Defects of single calls, which a loop repeats and every rank has: one finding for each place in
// the program.

// The calls of one place that have the same defect.
struct CallSite {
  static constexpr std::size_t kEvidenceShown = 4;

  CallRef first;
  std::vector<std::uint32_t> ranks;  // rank indices, ascending
  std::vector<Evidence> evidence;
  std::uint64_t count = 0;

  // Counts a call; ranks come in ascending order. True where evidence of it should be added.
  bool add(CallRef call);
};

// A cause that keeps nobody waiting, at the site's first call: all but its message. O(ranks).
Cause cause_at(const Context& context, RuleId rule, CallSite site);

// By group, place in it and message: interned ids, by which sites are found, differ from run to
// run.
void sort_by_place(std::vector<Cause>& causes);

}  // namespace lockstep::verify
