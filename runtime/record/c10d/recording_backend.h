// RecordingBackend: a c10d backend that records every call and passes it on to the real one.
//
// Put it into a ProcessGroup with setBackend() instead of the transport: everything that
// communicates through the group (our strategies, LibTorch's own Reducer) is then recorded.
//
// A call is in the ring file before the transport sees it. Gloo may abort the process from its own
// thread if sizes do not match, and the trace must show the call that caused it.
//
// On a device (NCCL) calls are queued, and return before they are complete. They are recorded as
// asynchronous, whatever the program asked for, and only `complete` says that one is over; only a
// blocking barrier blocks the host. A synchronous call runs in the caller's queue and returns no
// Work: marks around it show when it begins and completes, and the program gets no Work either.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/groups/forwarding_backend.h"
#include "runtime/record/c10d/recorded_group.h"
#include "runtime/record/c10d/work_watch.h"
#include "runtime/record/device_time.h"
#include "runtime/record/recorder.h"

namespace lockstep::runtime {

class RecordingBackend : public ForwardingBackend {
 public:
  struct Group {
    std::string name;                 // "world"
    std::vector<std::int32_t> ranks;  // global ranks in group order
    std::string description;
  };
  // What observes when a device begins and completes calls, and the computing time from which calls
  // are left out. Both must outlive the backend.
  struct OnDevice {
    WorkWatch& watch;
    DeviceTime& time;
    MarkQueue mark;
  };
  // Writes the group into the trace. `recorder` must outlive the backend and the calls in flight.
  // `device`: for a backend that queues calls; nothing if calls are complete when a wait for them
  // returns.
  RecordingBackend(c10::intrusive_ptr<c10d::Backend> inner, Recorder& recorder, Group group,
                   std::optional<OnDevice> device = {});

  const std::string getBackendName() const override { return inner_->getBackendName(); }
  c10::intrusive_ptr<Options> getBackendOptions() override { return inner_->getBackendOptions(); }
  void setTimeout(std::chrono::milliseconds timeout) override { inner_->setTimeout(timeout); }
  bool supportsCoalescing() const override { return inner_->supportsCoalescing(); }
  // Calls between the two are recorded as they come, and given to the transport at the end.
  void startCoalescing() override;
  WorkPtr endCoalescing() override;
  void abort() override { inner_->abort(); }
  void shutdown() override { inner_->shutdown(); }
  std::uint64_t getSequenceNumberForGroup() override { return inner_->getSequenceNumberForGroup(); }
  void setSequenceNumberForGroup() override { inner_->setSequenceNumberForGroup(); }

  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;

 private:
  // Records the call, makes it, and wraps what comes back.
  WorkPtr make(const BackendCall& call, const Forward& forward) override;
  // Makes calls that are already recorded as issued, and follows them until they complete.
  WorkPtr follow(const std::vector<std::uint32_t>& calls, const std::function<WorkPtr()>& forward);

  c10::intrusive_ptr<c10d::Backend> inner_;
  Recorder& recorder_;
  std::optional<OnDevice> device_;
  RecordedGroup group_;
  std::optional<std::vector<std::uint32_t>> coalesced_;  // calls since startCoalescing
};

}  // namespace lockstep::runtime
