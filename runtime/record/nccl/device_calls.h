// DeviceCalls: tells when calls complete that were put into a CUDA stream.
//
// Behind the calls goes an event of ours into their stream; once a millisecond a thread asks for
// the oldest event of each stream, so completions are recorded late by that at most. RecordedRank
// counts a call as on the device from enter() to its completion.
//
// Nobody can tell of a call that is captured in a CUDA graph, that is in a communicator that does
// not block (it may be launched later), or where the process has no CUDA driver: it counts as on
// the device until NCCL has taken it, and is not recorded as complete.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "runtime/record/nccl/communicator.h"
#include "runtime/record/nccl/cuda_driver.h"

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
  // NCCL refused it, or nobody can tell when it completes.
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
  static constexpr std::size_t kMostFollowed = 1U << 14U;  // events in flight

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
