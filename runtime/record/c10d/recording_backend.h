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
//
// Torch 2.15 has second names for some virtuals (all_gather_single beside _allgather_base, …); the
// base class sends each new name to its old one, so overriding the old names catches both, once.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "runtime/record/c10d/recorded_group.h"
#include "runtime/record/c10d/work_watch.h"
#include "runtime/record/device_time.h"
#include "runtime/record/recorder.h"

namespace lockstep {

class RecordingBackend : public c10d::Backend {
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
  c10::intrusive_ptr<c10d::Work> endCoalescing() override;
  void abort() override { inner_->abort(); }
  void shutdown() override { inner_->shutdown(); }
  std::uint64_t getSequenceNumberForGroup() override { return inner_->getSequenceNumberForGroup(); }
  void setSequenceNumberForGroup() override { inner_->setSequenceNumberForGroup(); }

  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<std::vector<at::Tensor>>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& opts) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& opts) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& opts) override;
  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override;
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& opts) override;
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs,
                         const c10d::ReduceScatterOptions& opts) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input,
                        std::vector<std::int64_t>& output_splits,
                        std::vector<std::int64_t>& input_splits,
                        const c10d::AllToAllOptions& opts) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;
  WorkPtr send(Tensors& tensors, int destination, int tag) override;
  WorkPtr recv(Tensors& tensors, int source, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

 private:
  // Records the call, makes it, and wraps what comes back.
  WorkPtr record(RecordedCall call, const std::function<WorkPtr()>& forward);
  // Makes calls that are recorded as issued, and follows them to their end.
  WorkPtr make(const std::vector<std::uint32_t>& calls, const std::function<WorkPtr()>& forward);

  c10::intrusive_ptr<c10d::Backend> inner_;
  Recorder& recorder_;
  std::optional<OnDevice> device_;
  RecordedGroup group_;
  std::optional<std::vector<std::uint32_t>> coalesced_;  // calls since startCoalescing
};

}  // namespace lockstep
