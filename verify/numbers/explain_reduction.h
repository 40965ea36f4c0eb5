// Wrong reductions in words: one finding per fault, however many tensors and steps show it.
#pragma once

#include <vector>

#include "verify/context.h"
#include "verify/numbers/reduction.h"

namespace lockstep::verify {

struct ReductionCause {
  ReductionFault::Kind kind{};
  std::int64_t n = 0;  // the first step that shows it
  Cause cause;

  // Ranks come out of it with different gradients, so that everything after it differs.
  bool parts_ranks() const {
    using Kind = ReductionFault::Kind;
    return kind == Kind::unsynchronised || kind == Kind::mispaired ||
           (kind == Kind::corrupt && !cause.deviants.empty());
  }
};

// By first step. O(faults log faults).
std::vector<ReductionCause> explain_reductions(const Context& context,
                                               const Reductions& reductions);

}  // namespace lockstep::verify
