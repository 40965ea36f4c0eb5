// Deviations: where do the ranks of one group issue different calls, and what is the difference?
//
// The classes of a group (verify/streams/streams.h) are walked side by side. Where their next calls
// do not agree, the classes split into parties. The largest party is the reference. Each other
// class is explained by the cheapest edits that make its sequence agree with the reference again: a
// call replaced, left out, added, or calls in another order.
//
//   rank 0  all_reduce(a)  all_reduce(b)  all_reduce(c)
//   rank 1  all_reduce(a)  all_reduce(c)                 b is left out: one deviation, although
//   rank 2  all_reduce(a)  all_reduce(b)  all_reduce(c)  every later call of rank 1 has other sizes
//
// Where a stream ends because its rank hangs, the calls that would have followed are taken from the
// previous occurrence of the same calls: training steps repeat.
//
// Cost: O(calls of the distinct classes), and 64 x 64 comparisons for each kind of edit, at most
// 8,192 times in a run and then once for each class.
#pragma once

#include <cstdint>
#include <vector>

#include "trace/run.h"
#include "verify/modality.h"
#include "verify/replay/replay.h"
#include "verify/streams/agreement.h"
#include "verify/streams/edits.h"
#include "verify/streams/streams.h"

namespace lockstep::verify {

struct Deviation {
  using Kind = EditKind;
  Kind kind = Kind::replaced;
  unsigned differences = kSame;
  std::size_t group = 0;  // index into the groups
  std::uint64_t seq = 0;  // sequence number of the reference's call
  std::int32_t step = trace::kNone;
  std::int32_t micro_batch = trace::kNone;  // of the step, where its micro-batches have lines
  std::vector<std::uint32_t> deviants;      // rank indices, ascending
  std::vector<std::uint32_t> reference;     // rank indices of the reference party, ascending
  bool singled_out = true;                  // false: neither party can be called the deviant one
  CallRef expected;  // a reference rank's call at `seq`; for an extra call: the call that
                     // should have been issued instead
  CallRef got;       // a deviant's call at that index; kNoCall: its stream ends
  // The calls of all deviants, if they replaced the reference's by different ones, each with the
  // ranks that issued it; `got` is the first of them. Else empty.
  struct Replacement {
    CallRef got;
    std::vector<std::uint32_t> ranks;  // indices, ascending
  };
  std::vector<Replacement> replacements;
  std::uint32_t count = 1;    // calls that are missing or extra
  std::uint64_t repeats = 0;  // how often the same deviation occurs again later

  BatchNumber batch() const { return {step, micro_batch}; }
};

// Tells the deviation from the other side: the ranks that deviated are the reference, what was
// missing is one too many, and the other way round.
void turn_around(Deviation& deviation);

// The deviations of one group (index `group` into `groups`), in the order of the walk; at most 64
// distinct ones, and no more than the first place where calls differ once the budget is spent.
// `where` says which ranks wait: a shorter stream of a waiting rank is no
// deviation. Empty where all members issued the same calls or the streams are not comparable.
std::vector<Deviation> find_deviations(const trace::Run& run,
                                       const std::vector<GroupStreams>& groups, std::size_t group,
                                       const ReplayResult& where, const Modalities& modalities,
                                       Agreement& agreement, EditBudget& budget);

}  // namespace lockstep::verify
