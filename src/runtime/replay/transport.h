// ReplayTransport: carries a replayed group's calls by Gloo, also those that Gloo has no form for.
//
// What is recorded is the call as it was made; what travels has the same number of bytes:
//
//   types that Gloo does not know     as integers or halves of the same width
//   avg, premul_sum                   as sum; so are and, or, xor of floating-point numbers
//   lists of several tensors          one after the other, in one tensor of bytes
//
// Values are zeros and stay it. A group whose members do not agree on who they are cannot be
// connected; its calls never complete.
#pragma once

#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "runtime/replay/held_calls.h"

namespace lockstep {

class ReplayTransport : public c10d::Backend {
 public:
  // `gloo`: null for a group that is not connected. `held` must outlive this.
  ReplayTransport(c10::intrusive_ptr<c10d::Backend> gloo, int rank, int size, HeldCalls& held)
      : Backend(rank, size), gloo_(std::move(gloo)), held_(held) {}

  const std::string getBackendName() const override { return "gloo"; }
  void setTimeout(std::chrono::milliseconds timeout) override {
    if (gloo_) gloo_->setTimeout(timeout);
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
  WorkPtr carry(HeldCalls::Start call);

  c10::intrusive_ptr<c10d::Backend> gloo_;
  HeldCalls& held_;
};

}  // namespace lockstep
