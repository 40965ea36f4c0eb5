// What PyTorch says of mismatched collectives with TORCH_DISTRIBUTED_DEBUG=DETAIL, in a job's
// output:
//
//   [rank0]: RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running
//       collective: CollectiveFingerPrint(SequenceNumber=1, OpType=ALLREDUCE, TensorShape=[10],
//       TensorDtypes=Float, …), but Rank 1 is running collective: CollectiveFingerPrint(…
//
// Source: pytorch torch/csrc/distributed/c10d/ProcessGroupWrapper.cpp (1.9 to 2.15). Every rank
// compares its call with those of all members and tells of the first that differs; so each message
// gives the calls of two ranks, and all messages together those of the ranks that spoke. Ranks are
// those of the group, which the message does not name: it is taken as the group of all ranks.
#pragma once

#include <cstddef>

#include "trace/formats/format.h"

namespace lockstep::trace {

inline constexpr std::size_t kDetailLogMemoryFactor = 40;

Format detail_log_format();

}  // namespace lockstep::trace
