// A libcuda.so.1 without GPUs, as far as cuda_driver.h knows it: a stream is done with what it was
// given as long as it runs; after stop_streams() it is not, until run_streams().
#include <atomic>

#include "runtime/record/nccl/cuda_driver.h"

using namespace lockstep::cuda;

struct lockstep::cuda::CUevent_st {
  bool behind_the_stop = false;
};

namespace {

std::atomic<bool> stopped{false}, captures{false};

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): CUDA's names
extern "C" {

void stop_streams() { stopped = true; }
void run_streams() { stopped = false; }
void begin_capture() { captures = true; }

Code cuStreamGetCtx(Stream, Context* out) {
  *out = nullptr;
  return kSuccess;
}
Code cuCtxPushCurrent_v2(Context) { return kSuccess; }
Code cuCtxPopCurrent_v2(Context* out) {
  *out = nullptr;
  return kSuccess;
}
Code cuStreamIsCapturing(Stream, int* out) {
  *out = captures ? 1 : 0;
  return kSuccess;
}
Code cuThreadExchangeStreamCaptureMode(int*) { return kSuccess; }
Code cuEventCreate(Event* out, unsigned) {
  *out = new lockstep::cuda::CUevent_st;
  return kSuccess;
}
Code cuEventRecord(Event event, Stream) {
  event->behind_the_stop = stopped;
  return kSuccess;
}
Code cuEventQuery(Event event) { return event->behind_the_stop && stopped ? kNotReady : kSuccess; }

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
