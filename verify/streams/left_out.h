// A call that few ranks of a group make and most do not: did most leave it out?
//
// Most batches may have no images, so the number of ranks says little about a call that is left
// out. Other evidence decides. In both functions `parties` are two, and `small` is the index of the
// smaller one.
#pragma once

#include <cstddef>
#include <vector>

#include "verify/streams/alignment.h"

namespace lockstep::verify {

// Whether the larger party left out the call of the smaller one. The batches show it (every rank of
// the larger party lacks a modality that those of the smaller one hold), or the sister groups,
// which made the call, or the past: see expected_of(), or, in a first step, that it is one of the
// calls by which a framework synchronises all parts of a model. Batches and first steps count only
// where the smaller party does not break with its own past: then that party is the odd one.
//
// O(ranks of the parties), the search of a past for at most 64 ranks, and an edit for each class of
// the larger party where this decides.
bool most_left_out(Alignment& alignment, const std::vector<Party>& parties, std::size_t small);

// Whether nothing shows which side is wrong where the few made several calls more in a row in their
// first round: they may be those of a branch that most batches do not use. Neither side made any
// such call before or makes one later, and there are no lines and no names. A single call more is
// one too many: a barrier or a metric.
bool may_be_left_out_in_first_round(Alignment& alignment, const std::vector<Party>& parties,
                                    std::size_t small);

}  // namespace lockstep::verify
