// RecordingBackend: a c10d backend that records every call and passes it on to the real one.
//
// Put it into a ProcessGroup with setBackend() in the transport's place: whoever communicates
// through the group (our strategies, LibTorch's own Reducer) is recorded without knowing.
//
// A call is in the ring file before the transport sees it: Gloo may abort the process from its own
// thread when sizes do not fit, and the trace must show the call that did it.
//
// On a device (NCCL) calls are queued, and return before they are complete: they are recorded as
// asynchronous, whatever the program asked for, and `complete` alone says that one is over; only a
// barrier that is to block does block the host. A call that the program does not ask a Work of runs
// in the caller's queue and has none: marks around it tell when it begins and completes, and the
// program gets none either.
#pragma once

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
  // What tells when a device begins and completes calls, and what the time that its queue stands
  // still behind them is left out of. Both must outlive the backend.
  struct OnDevice {
    WorkWatch& watch;
    DeviceTime& time;
    MarkQueue mark;
  };
  // Writes the group into the trace. `recorder` must outlive the backend and the calls in flight.
  // `device`: of a backend whose calls are queued; nothing where they are complete when a wait for
  // them returns.
  RecordingBackend(c10::intrusive_ptr<c10d::Backend> inner, Recorder& recorder, Group group,
                   std::optional<OnDevice> device = {});

  const std::string getBackendName() const override { return inner_->getBackendName(); }
  c10::intrusive_ptr<Options> getBackendOptions() override { return inner_->getBackendOptions(); }
  void setTimeout(std::chrono::milliseconds timeout) override { inner_->setTimeout(timeout); }
  bool supportsCoalescing() const override { return inner_->supportsCoalescing(); }
  // The calls between the two are issued as they come, and are given to the transport at the end.
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
  // Makes calls that are recorded as issued, and follows them to their end.
  WorkPtr follow(const std::vector<std::uint32_t>& calls, const std::function<WorkPtr()>& forward);

  c10::intrusive_ptr<c10d::Backend> inner_;
  Recorder& recorder_;
  std::optional<OnDevice> device_;
  RecordedGroup group_;
  std::optional<std::vector<std::uint32_t>> coalesced_;  // calls since startCoalescing
};

}  // namespace lockstep::runtime
