// Whether a modality that a rank's batch lacked explains a call that it did not make.
#pragma once

#include <cstdint>

#include "trace/run.h"
#include "verify/modality.h"
#include "verify/replay/replay.h"
#include "verify/streams/agreement.h"

namespace lockstep::verify {

// Whether the batch of `rank` (an index) lacked a modality that the batch of `call`'s rank held,
// and no earlier batch shows that such batches still make such calls: a dummy input may
// stand in, or all gradients may be reduced whatever the batch holds.
//
//   step 0   rank 0: image, text   a b        rank 1: text   a b
//   step 1   rank 0: image, text   a b        rank 1: text   a        its batch is not the reason
//
// O(calls of two ranks) for each of at most 64 earlier batches.
bool do_batches_explain(const trace::Run& run, const Modalities& modalities, Agreement& agreement,
                        std::uint32_t rank, CallRef call, BatchNumber batch);

}  // namespace lockstep::verify
