// ReplayTransport: carries the calls of a replayed group by Gloo or NCCL, also those that these do
// not support.
//
// The trace records the original call; what is sent has the same number of bytes:
//
//   types that the carrier does not know   as integers or halves of the same width
//   premul_sum; on Gloo avg                as sum; so are and, or, xor of floating-point numbers,
//                                          and on NCCL of all types
//   lists of several tensors               concatenated in one tensor of bytes
//
// Values are zeros throughout. A group whose members disagree about its members cannot be
// connected; its calls never complete, and block the host that waits for them.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace lockstep::runtime {

// HeldCalls: calls that are in the trace but have not been given to Gloo yet.
//
// Gloo may abort the process as soon as two ranks' calls do not fit. A rank that is ahead would
// then keep the others from recording their calls. So from the first call that does not fit
// (runtime/replay/disputes.h), a rank's calls are held until it waits for something or its program
// ends, which is as far as it would have come in any case. NCCL aborts nothing, so nothing is held
// over it.
//
// For the thread that plays the rank. Whether a held call is complete may be asked from any thread.
class HeldCalls {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Start = std::function<WorkPtr()>;

  // Hold calls from now on, unless they were released before.
  void hold() { holding_ = !released_; }
  bool any() const { return !held_.empty(); }
  // Whether start() would hold a call now.
  bool holding() const { return holding_; }

  // Starts the call now, or holds it. The returned Work must only be waited for after release().
  WorkPtr start(Start call);
  // Starts the held calls in order, and holds nothing from now on. An exception of a start is
  // thrown by the wait for its call.
  void release();

 private:
  // Has no future, so its completion is seen by the wait for it.
  class HeldWork : public c10d::Work {
   public:
    explicit HeldWork(Start call) : call_(std::move(call)) {}
    void start();
    bool isCompleted() override { return started_ && inner_ && inner_->isCompleted(); }
    bool isSuccess() const override { return started_ && inner_ && inner_->isSuccess(); }
    bool wait(std::chrono::milliseconds timeout) override;

   private:
    Start call_;
    WorkPtr inner_;
    std::exception_ptr failed_;
    std::atomic<bool> started_{false};  // `inner_` is final
  };

  bool holding_ = false, released_ = false;
  std::deque<c10::intrusive_ptr<HeldWork>> held_;
};

class ReplayTransport : public c10d::Backend {
 public:
  using Carrier = c10::intrusive_ptr<c10d::Backend>;
  // A group's connections. On a device that queues, the calls of one connection block each other,
  // which they do not on Gloo. So messages have their own connections: one to higher group ranks,
  // another to lower ones. All three are the same where it makes no difference.
  struct Carriers {
    Carrier collectives, up, down;
  };
  // `carriers`: null if the group is not connected. `held` must outlive this.
  ReplayTransport(Carriers carriers, int rank, int size, HeldCalls& held)
      : Backend(rank, size), carriers_(std::move(carriers)), held_(held) {}

  const std::string getBackendName() const override {
    return carriers_.collectives ? carriers_.collectives->getBackendName() : "gloo";
  }
  void setTimeout(std::chrono::milliseconds timeout) override {
    for (const Carrier& each : {carriers_.collectives, carriers_.up, carriers_.down}) {
      if (each) each->setTimeout(timeout);
    }
  }

  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<std::vector<at::Tensor>>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& opts) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& opts) override;
  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override;
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& opts) override;
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs,
                         const c10d::ReduceScatterOptions& opts) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& opts) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input,
                        std::vector<std::int64_t>& output_splits,
                        std::vector<std::int64_t>& input_splits,
                        const c10d::AllToAllOptions& opts) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  WorkPtr send(Tensors& tensors, int destination, int tag) override;
  WorkPtr recv(Tensors& tensors, int source, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

 private:
  // `call` gets the options with which the call may be made: a held one is asynchronous.
  template <class CallOptions>
  WorkPtr carry(const CallOptions& options,
                std::function<WorkPtr(c10d::Backend&, CallOptions&)> call);
  WorkPtr carry(const Carrier& carrier, std::function<WorkPtr(c10d::Backend&)> call);

  Carriers carriers_;
  HeldCalls& held_;
};

}  // namespace lockstep::runtime
