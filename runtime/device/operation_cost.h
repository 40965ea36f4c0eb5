// What one operation that LibTorch dispatches costs, by the shapes of its tensors: floating-point
// operations, and bytes that it reads and writes.
//
// Matrix products, fused attention and convolutions are counted as torch.utils.flop_counter counts
// them; what else a model computes is a few per cent of these and bound by memory, so its bytes are
// what counts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/record_function.h>

namespace lockstep::runtime {

struct OperationCost {
  double matmul = 0, convolution = 0;  // floating-point operations
  std::string dtype;                   // of the first tensor, where there are any: "float32"
  double read = 0;                     // bytes of the inputs
  bool writes_inputs = false;          // in place, or into a tensor that was given
  bool looks_up = false;               // takes rows of a table, and reads no more of it
  bool allocates = false;              // moves nothing, or is no operation on tensors (c10d's)
  std::vector<const void*> storages;   // of the inputs, to tell views

  double flops() const { return matmul + convolution; }
};

// At the start of an operation, whose inputs must have been asked for. O(tensors among them).
OperationCost cost_at_start(const at::RecordFunction& function);

// At its end, whose outputs must have been asked for: the bytes that it moved, each input read and
// each output written once; a table that is looked up counts as what was taken from it. Below 0
// where it is no kernel: it makes views, allocates, or gives no tensor. O(tensors²), few.
double bytes_at_end(const at::RecordFunction& function, const OperationCost& cost);

// Floating-point operations of what this thread computes, counted where LibTorch dispatches it, by
// the shapes: matrix products, fused attention and convolutions, a multiplication and an addition
// each counted as one operation, as torch.utils.flop_counter does. What else a model computes is
// left out: it is a few per cent of these.

struct FlopsOf {
  double matmul = 0, convolution = 0;
};
// Of one operation: "aten::addmm". Zero of what is left out. O(1).
FlopsOf flops_of(std::string_view name, c10::ArrayRef<const c10::IValue> inputs);

// Counts while it lives; one at a time in a thread.
class FlopCount {
 public:
  FlopCount();
  ~FlopCount();
  FlopCount(const FlopCount&) = delete;
  FlopCount& operator=(const FlopCount&) = delete;

  double so_far() const;

 private:
  at::CallbackHandle handle_;
};

}  // namespace lockstep::runtime
