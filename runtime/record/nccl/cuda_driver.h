// The CUDA driver's functions that tell how far a stream has come, as they are in this process.
//
// Lockstep's declarations of what NVIDIA publishes in cuda.h (CUDA 10.1 to 13); the numbers are the
// interface's. A stream of the runtime is one of the driver's.
#pragma once

#include <optional>

#include "runtime/record/nccl/nccl_interface.h"

namespace lockstep::runtime::cuda {

using Context = struct CUctx_st*;
using Event = struct CUevent_st*;
using Stream = nccl::Stream;

using Code = int;  // CUresult
inline constexpr Code kSuccess = 0;
inline constexpr Code kNotReady = 600;

inline constexpr unsigned kDisableTiming = 2;  // CU_EVENT_DISABLE_TIMING
inline constexpr int kRelaxed = 2;             // CU_STREAM_CAPTURE_MODE_RELAXED

struct Driver {
  Code (*context_of)(Stream stream, Context* out);  // of the default stream: the current one
  Code (*push)(Context context);
  Code (*pop)(Context* out);
  Code (*is_capturing)(Stream stream, int* out);
  Code (*exchange_capture_mode)(int* mode);
  Code (*make_event)(Event* out, unsigned flags);
  Code (*record)(Event event, Stream stream);
  Code (*query)(Event event);
};

// Nothing where the process has not loaded the driver, or one without these functions. Loads none.
std::optional<Driver> find_driver();

}  // namespace lockstep::runtime::cuda
