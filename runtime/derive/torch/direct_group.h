// A process group that gives meta tensors to its backend itself: c10d's dispatcher has no kernels
// for them. Others go the usual way.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace lockstep {

class DirectGroup : public c10d::ProcessGroup {
 public:
  using c10d::ProcessGroup::ProcessGroup;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  WorkPtr broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& opts) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& opts) override;

 private:
  c10::intrusive_ptr<c10d::Backend> backend() { return getBackend(c10::DeviceType::CPU); }
};

}  // namespace lockstep
