// Deviations: where, in one group, do ranks part from the others, and how?
//
// The classes of a group (verify/streams/streams.h) are walked side by side. Where their next calls
// do not agree, the classes split into parties; the largest is the reference, and each deviating
// class is explained by the cheapest edits that make its sequence agree with the reference's again:
// a call replaced, left out, added, or two swapped. So one skipped all-reduce is one deviation
// rather than twenty size mismatches. Where a stream ends (its rank hangs in the call), what would
// have come next is taken from the last time the same call came by: training repeats itself.
//
// Cost: O(calls of the distinct classes), and 64 x 64 comparisons for each kind of edit.
#pragma once

#include <cstdint>
#include <optional>
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
  std::uint64_t seq = 0;  // of the reference's call
  std::int32_t step = trace::kNone;
  std::vector<std::uint32_t> deviants;   // rank indices, ascending
  std::vector<std::uint32_t> reference;  // rank indices of the reference party, ascending
  bool singled_out = true;               // false: neither party can be called the deviant one
  CallRef expected;  // a reference rank's call at `seq`; of an extra call: the call
                     // that should have come
  CallRef got;       // a deviant's call there; kNoCall: its stream ends
  std::uint32_t count = 1;
  std::uint64_t repeats = 0;  // further places at which the same happens again
};

// All deviations of one group, in order of their place. `where` tells who waits (a waiting rank's
// shorter stream is no deviation).
std::vector<Deviation> find_deviations(const trace::Run& run,
                                       const std::vector<GroupStreams>& groups, std::size_t group,
                                       const ReplayResult& where, const Modalities& modalities,
                                       Agreement& agreement);

}  // namespace lockstep::verify
