// HostRead: around every place where the program reads a value of a tensor.
//
//   const HostRead reading(recorder, loss);
//   const auto value = loss.item<double>();
//
// Where the tensor is a device's, the host blocks there until its queue is done, and the trace has
// to show it (Recorder::HostWait). A tensor of the host is complete when its call is; on a CPU
// whose calls are queued the queue itself says where the host blocks (Device::when_host_blocks).
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
