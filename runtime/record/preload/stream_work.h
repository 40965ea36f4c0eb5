// StreamWork: stands for a call that a backend has put into the caller's stream without a handle.
// It is complete when the stream has come so far.
//
// Through the device guard that LibTorch registers, so that nothing of CUDA is needed to build it.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace lockstep {

class StreamWork : public c10d::Work {
 public:
  // Behind what is in the device's current stream. Throws c10::Error where the device fails.
  explicit StreamWork(c10::Device device) : event_(device.type()) {
    event_.record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }
  bool isCompleted() override { return event_.query(); }

 private:
  c10::Event event_;
};

}  // namespace lockstep
