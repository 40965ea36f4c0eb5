// HostRead: put it around every read of a tensor's value.
//
//   const HostRead reading(recorder, loss);
//   const auto value = loss.item<double>();
//
// If the tensor is on a device, the host blocks there until its queue is done, and the trace has to
// show that (Recorder::HostWait). A host tensor is complete when its call is; on a CPU that queues
// calls, the queue reports where the host blocks (Device::when_host_blocks).
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include "runtime/record/recorder.h"

namespace lockstep::runtime {

class HostRead {
 public:
  HostRead(Recorder& recorder, const at::Tensor& tensor) {
    if (tensor.defined() && !tensor.is_cpu()) waiting_.emplace(recorder);
  }
  HostRead(const HostRead&) = delete;
  HostRead& operator=(const HostRead&) = delete;

 private:
  std::optional<Recorder::HostWait> waiting_;
};

}  // namespace lockstep::runtime
