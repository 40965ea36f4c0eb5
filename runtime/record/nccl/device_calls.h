// DeviceCalls: finds out when the calls in a CUDA stream complete.
//
// An event of ours follows the calls into their stream. Once a millisecond a thread asks for the
// oldest event of each stream, so completions are recorded at most that late. RecordedRank
// counts a call as on the device from enter() to its completion.
//
// Nothing shows it of a call that is captured in a CUDA graph, that is in a communicator that does
// not block (it may be launched later), or where the process has no CUDA driver: it counts as on
// the device until NCCL has taken it, and is not recorded as complete.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "runtime/record/nccl/communicator.h"
#include "runtime/record/nccl/nccl_interface.h"

namespace lockstep::runtime::cuda {

// The CUDA driver's functions that say how far a stream has come, as they are in this process.
//
// Lockstep's declarations of what NVIDIA publishes in cuda.h (CUDA 10.1 to 13); the numbers are the
// interface's. A stream of the runtime is one of the driver's.

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

// The device that this thread uses, by CUDA's index. Nothing where the process has not loaded the
// driver, or the thread has no context.
std::optional<int> current_device();

}  // namespace lockstep::runtime::cuda

namespace lockstep::runtime {

class DeviceCalls {
 public:
  struct Call {
    RecordedRank* rank = nullptr;  // has a ring
    std::uint32_t id = 0;
    cuda::Stream stream = nullptr;
  };

  // The process's: never destroyed, as calls may come until the process is gone. Its thread ends
  // with the first exit handler, before the driver's own. LOCKSTEP_RECORD_COMPLETION=0: follows no
  // call.
  static DeviceCalls& of_process();

  // Without a driver no call is followed. `driver` is asked once, at the first call.
  using FindDriver = std::optional<cuda::Driver> (*)();
  explicit DeviceCalls(FindDriver find) : find_(find) {}

  // NCCL is about to be given the call.
  static void enter(const Call& call) {
    call.rank->on_device.fetch_add(1, std::memory_order_relaxed);
  }
  // NCCL refused it, or nothing shows when it completes.
  static void leave(const Call& call) {
    call.rank->on_device.fetch_sub(1, std::memory_order_relaxed);
  }
  // NCCL has put the calls into their streams, on this thread. Takes them to their completion.
  void follow(std::span<const Call> calls);

  // Asks the device once, and records what is complete.
  void look();
  // No more questions from now on.
  void stop();

 private:
  struct Followed {
    cuda::Event event = nullptr;
    cuda::Context context = nullptr;
    std::vector<Call> calls;  // of one stream
  };
  static constexpr std::size_t kMaxInFlight = 1U << 14U;  // events in flight

  bool put_event(std::span<const Call> calls);
  void complete(Followed& followed, bool well);
  void look_locked();
  [[noreturn]] static void watch(DeviceCalls& self);

  const FindDriver find_;
  std::mutex mutex_;
  std::condition_variable some_;
  bool looked_for_ = false, stopped_ = false, has_watcher_ = false;
  std::optional<cuda::Driver> driver_;
  std::size_t in_flight_ = 0;
  std::map<cuda::Stream, std::deque<Followed>> streams_;
  std::map<cuda::Context, std::vector<cuda::Event>> free_;
};

}  // namespace lockstep::runtime
