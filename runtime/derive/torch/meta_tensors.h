// Tensors without values: on LibTorch's meta device a model of any size takes no memory and a step
// of it no arithmetic, and the calls that it makes are those of the real one.
//
// LibTorch in C++ lacks the meta kernels that in Python are written in Python; those that our
// models need are registered here, for the whole process. What a program asks the values for is
// answered so: a number that is read is NaN (0 of whole numbers), and every element counts as not
// zero.
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "runtime/device/device.h"

namespace lockstep::runtime {

// While it lives, tensors that this thread makes on the CPU by their sizes (the parameters of
// modules) are meta tensors.
class MakeOnMeta {
 public:
  MakeOnMeta();

 private:
  c10::impl::IncludeDispatchKeyGuard on_;
};

// The device of meta tensors. What is brought to it loses its values. It carries nothing to other
// ranks: for a rank that is alone (runtime/derive/torch/instant_backend.h).
std::unique_ptr<Device> meta_device();

// Meta kernels that LibTorch has in Python only.

// For the whole process; does nothing from the second time on. Before the first meta tensor.
void register_meta_kernels();

// A process group that gives meta tensors to its backend itself: c10d's dispatcher has no kernels
// for them. Others go the usual way.

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

}  // namespace lockstep::runtime
