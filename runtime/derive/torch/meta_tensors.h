// Tensors without values. On LibTorch's meta device a model of any size takes no memory and a step
// no arithmetic, and the model makes the calls of the real one.
//
// The C++ part of LibTorch lacks meta kernels that are written in Python. Those that our models
// need are registered here, for the whole process. If a program reads a value, it gets NaN (0 for
// integers), and every element counts as non-zero.
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "runtime/device/device.h"

namespace lockstep::runtime {

// While it lives, tensors that this thread creates on the CPU by size (module parameters) are meta
// tensors.
class MakeOnMeta {
 public:
  MakeOnMeta();

 private:
  c10::impl::IncludeDispatchKeyGuard on_;
};

// The device of meta tensors. Tensors brought to it lose their values. It has no transport: it is
// for a rank that runs alone (runtime/derive/torch/instant_backend.h).
std::unique_ptr<Device> meta_device();

// torch.autocast for meta tensors, which LibTorch's does not know: while it lives, this thread's
// operations convert them as autocast converts tensors of the CPU (ATen/autocast_mode.cpp), to
// `lower` or to float32. Conversions of parameters are not cached.
class MetaAutocast {
 public:
  explicit MetaAutocast(at::ScalarType lower);

 private:
  c10::impl::IncludeDispatchKeyGuard on_;
};

// A process group that passes meta tensors directly to its backend, because c10d's dispatcher has
// no kernels for them. Other tensors take the usual path.

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
