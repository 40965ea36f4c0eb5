// ForwardingBackend: a c10d backend in which every call goes through one function, make(). For
// backends that wrap a transport (to record, to queue) or replace it.
//
// Torch 2.15 has second names for some virtuals (all_gather_single for _allgather_base, …). The
// base class forwards each new name to the old one, so overriding the old names catches both, once.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "trace/signature.h"

namespace lockstep::runtime {

// A call as the program made it. Tensors and lists are borrowed: they are valid until make()
// returns.
struct BackendCall {
  c10d::OpType type = c10d::OpType::UNKNOWN;
  trace::Op op = trace::Op::other;
  at::TensorList in = {}, out = {};        // lists of lists are concatenated
  const c10d::ReduceOp* reduce = nullptr;  // only for reductions
  std::int64_t root = trace::kNone;        // group rank, like `peer`
  bool is_async = true;
  const std::vector<std::int64_t>* splits_in = nullptr;
  const std::vector<std::int64_t>* splits_out = nullptr;
  std::int32_t peer = trace::kNone;
  std::int32_t peer_tag = trace::kNoPeerTag;
};

class ForwardingBackend : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<std::vector<at::Tensor>>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) final;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) final;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) final;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) final;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) final;
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& opts) final;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& opts) final;
  WorkPtr allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& opts) final;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& opts) final;
  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) final;
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& opts) final;
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs,
                         const c10d::ReduceScatterOptions& opts) final;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& opts) final;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) final;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input,
                        std::vector<std::int64_t>& output_splits,
                        std::vector<std::int64_t>& input_splits,
                        const c10d::AllToAllOptions& opts) final;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) final;
  WorkPtr barrier(const c10d::BarrierOptions& opts) final;
  WorkPtr send(Tensors& tensors, int destination, int tag) final;
  WorkPtr recv(Tensors& tensors, int source, int tag) final;
  WorkPtr recvAnysource(Tensors& tensors, int tag) final;

 protected:
  using Backend::Backend;

  // The same call on another backend.
  class Forward {
   public:
    // Makes it now, with the program's own arguments.
    virtual WorkPtr now(c10d::Backend& backend) const = 0;
    // Returns a function that makes it later, with copies of the arguments (not of the tensors'
    // data).
    virtual std::function<WorkPtr()> later(c10::intrusive_ptr<c10d::Backend> backend) const = 0;

   protected:
    ~Forward() = default;
  };

  // Called for every call. `forward` is valid until it returns.
  virtual WorkPtr make(const BackendCall& call, const Forward& forward) = 0;

 private:
  template <typename Method, typename... Args>
  class ForwardOf;
  template <typename Method, typename... Args>
  WorkPtr pass(const BackendCall& call, Method method, Args&... args);
};

// EndlessWork: a call that never completes, because nothing carries it. The watchdog ends a rank
// that waits for it.
class EndlessWork : public c10d::Work {
 public:
  bool isCompleted() override { return false; }
  bool isSuccess() const override { return false; }
  bool wait(std::chrono::milliseconds) override {
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
  }
};

}  // namespace lockstep::runtime
