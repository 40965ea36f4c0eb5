// NCCL's own interface, as far as the preloaded library stands in front of it: Lockstep's
// declarations of what NVIDIA/nccl publishes in src/nccl.h.in (versions 2.7 to 2.30). The numbers
// of ncclDataType_t and ncclRedOp_t are in trace/nccl_calls.h.
#pragma once

namespace lockstep::runtime::nccl {

struct Communicator;                 // of NCCL's own
using Comm = Communicator*;          // ncclComm_t
using Stream = struct CUstream_st*;  // cudaStream_t: opaque

using ResultCode = int;  // ncclResult_t
inline constexpr ResultCode kSuccess = 0;
inline constexpr ResultCode kInternalError = 3;
inline constexpr ResultCode kInProgress = 7;  // of communicators that do not block

struct UniqueId {
  char internal[128];
};

inline constexpr int kNoColor = -1;  // NCCL_SPLIT_NOCOLOR: no part of the split

}  // namespace lockstep::runtime::nccl
