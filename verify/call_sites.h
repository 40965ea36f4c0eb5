// Defects of single calls, which a loop repeats and every rank has: one finding for each place in
// the program.
#pragma once

#include <cstdint>
#include <vector>

#include "verify/context.h"
#include "verify/matching/explain_deviation.h"

namespace lockstep {

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

}  // namespace lockstep
