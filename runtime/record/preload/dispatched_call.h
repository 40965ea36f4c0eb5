// A call of c10d as LibTorch's dispatcher sees it: an operator of the library `c10d` with its
// arguments on a stack.
//
// Arguments are found by their names in the operator's schema, which hold from 2.11 to 2.15; those
// of an operator that is not known are not looked at.
#pragma once

#include <optional>
#include <vector>

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "runtime/record/c10d/recorded_group.h"

namespace lockstep::runtime {

struct DispatchedCall {
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  std::vector<at::Tensor> in, out;
  c10::intrusive_ptr<c10d::ReduceOp> reduce;  // null: none
  std::vector<std::int64_t> splits_in, splits_out;
  bool has_splits = false;
  BackendCall fields;  // except what is listed above

  // Refers to this object.
  BackendCall recorded() const;
  // The GPU that its tensors are on; nothing: they are on none.
  std::optional<c10::Device> cuda_device() const;
  // Its tensors have no values.
  bool is_meta() const;
};

// The operators that are recorded, by their names without the library's.
const std::vector<const char*>& recorded_operators();

// Nothing for an operator that is not one of these. `arguments`: as many as the schema has.
std::optional<DispatchedCall> read_call(const c10::FunctionSchema& schema,
                                        c10::ArrayRef<c10::IValue> arguments);

// StreamWork: stands for a call that a backend has put into the caller's stream without a handle.
// It is complete when the stream has come so far.
//
// Through the device guard that LibTorch registers, so that nothing of CUDA is needed to build it.

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

}  // namespace lockstep::runtime
