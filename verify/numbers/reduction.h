// Is the synchronised gradient what its synchronisation ought to make of the ranks' own?
//
// A sketch is linear: the sketch of a mean is the mean of the sketches, up to rounding
// (verify/numbers/rounding.h). Where a row of synchronised gradients breaks this, the sketches also
// tell how: divided by another number, a rank left out or counted twice, another tensor in a rank's
// place. That identifies tensors because sketches of all tensors use the same signs
// (docs/trace-format.md). Where no sketches were recorded, hashes show what was not synchronised at
// all, and norms what is too large to be a mean (triangle inequality).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "verify/context.h"
#include "verify/numbers/sync_calls.h"
#include "verify/numbers/value_table.h"

namespace lockstep {

struct ReductionFault {
  enum class Kind : std::uint8_t {
    unsynchronised,  // it is the rank's own gradient still
    divisor,         // right but for the number that the sum was divided by
    left_out,        // a rank's gradient is not in it
    counted_twice,   // a rank's gradient is in it twice
    mispaired,       // a rank put another tensor in
    diluted,         // divided by all ranks, though only some had a gradient
    too_large,       // larger than any mean of these gradients
    corrupt,         // none of these: some rank's values changed on the way
  };
  Kind kind{};
  const ValueRow* row = nullptr;        // the synchronised gradient
  std::vector<std::uint32_t> culprits;  // rank indices; may be empty
  std::size_t world = 0;                // how many ranks take part
  std::size_t contributors = 0;         // how many of them had a gradient
  double divisor = 0;                   // Kind::divisor and left_out: what it was divided by
  StringId partner;                     // Kind::mispaired: the tensor that was put in
  bool declared = false;                // Kind::diluted: the program says "average=contributors"
};

struct Reductions {
  std::vector<ReductionFault> faults;  // in the order of the rows
  std::size_t checked = 0;             // gradients whose relation could be checked
  std::size_t unchecked = 0;           // … could not, since ranks of their group left no trace
};

// O(readings · sketch size) where all is well. A wrong row costs a few passes over its ranks, and
// one over the tensors of its size: that is done for the first rows of a run only.
Reductions check_reductions(const Context& context, const ValueTable& table,
                            const SyncCalls& calls);

}  // namespace lockstep
