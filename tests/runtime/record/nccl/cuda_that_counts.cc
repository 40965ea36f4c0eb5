// A libcuda.so.1 without GPUs, as far as device_calls.h knows it: a stream is done with what it was
// given as long as it runs; after stop_streams() it is not, until run_streams().
#include <stdlib.h>

#include <atomic>

#include "runtime/record/nccl/device_calls.h"

using namespace lockstep::runtime::cuda;

struct lockstep::runtime::cuda::CUevent_st {
  bool after_the_stop = false;
};

namespace {

std::atomic<bool> stopped{false}, captures{false};

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): CUDA's names
extern "C" {

void stop_streams() { stopped = true; }
void run_streams() { stopped = false; }
void begin_capture() { captures = true; }

// The thread's device is NCCL_TEST_DEVICE; without it the thread has no context.
lockstep::runtime::cuda::Code cuCtxGetDevice(int* out) {
  constexpr lockstep::runtime::cuda::Code kInvalidContext = 201;
  const char* const device = ::getenv("NCCL_TEST_DEVICE");
  if (device == nullptr) return kInvalidContext;
  *out = std::atoi(device);
  return lockstep::runtime::cuda::kSuccess;
}
lockstep::runtime::cuda::Code cuStreamGetCtx(lockstep::runtime::cuda::Stream,
                                             lockstep::runtime::cuda::Context* out) {
  *out = nullptr;
  return lockstep::runtime::cuda::kSuccess;
}
lockstep::runtime::cuda::Code cuCtxPushCurrent_v2(lockstep::runtime::cuda::Context) {
  return lockstep::runtime::cuda::kSuccess;
}
lockstep::runtime::cuda::Code cuCtxPopCurrent_v2(lockstep::runtime::cuda::Context* out) {
  *out = nullptr;
  return lockstep::runtime::cuda::kSuccess;
}
lockstep::runtime::cuda::Code cuStreamIsCapturing(lockstep::runtime::cuda::Stream, int* out) {
  *out = captures ? 1 : 0;
  return lockstep::runtime::cuda::kSuccess;
}
lockstep::runtime::cuda::Code cuThreadExchangeStreamCaptureMode(int*) {
  return lockstep::runtime::cuda::kSuccess;
}
lockstep::runtime::cuda::Code cuEventCreate(lockstep::runtime::cuda::Event* out, unsigned) {
  *out = new lockstep::runtime::cuda::CUevent_st;
  return lockstep::runtime::cuda::kSuccess;
}
lockstep::runtime::cuda::Code cuEventRecord(lockstep::runtime::cuda::Event event,
                                            lockstep::runtime::cuda::Stream) {
  event->after_the_stop = stopped;
  return lockstep::runtime::cuda::kSuccess;
}
lockstep::runtime::cuda::Code cuEventQuery(lockstep::runtime::cuda::Event event) {
  return event->after_the_stop && stopped ? lockstep::runtime::cuda::kNotReady
                                          : lockstep::runtime::cuda::kSuccess;
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
