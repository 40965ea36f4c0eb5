// The cost of one operation that LibTorch dispatches, from the shapes of its tensors:
// floating-point operations, and bytes read and written.
//
// Matrix products, fused attention and convolutions are counted like torch.utils.flop_counter does.
// All other operations of a model are a few per cent of these and limited by memory, so their bytes
// are counted.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <ATen/record_function.h>

namespace lockstep::runtime {

struct OperationCost {
  double matmul = 0, convolution = 0;  // floating-point operations
  std::string dtype;                   // of the first tensor, if there is one: "float32"
  double read = 0;                     // bytes of the inputs
  bool writes_inputs = false;          // in place, or into a given tensor
  bool looks_up = false;               // reads only some rows of a table
  bool allocates = false;              // moves no data, or is not an operation on tensors (c10d's)
  std::vector<const void*> storages;   // of the inputs, to detect views

  double flops() const { return matmul + convolution; }
};

// Call it at the start of an operation whose inputs were requested. O(tensors among them).
OperationCost cost_at_start(const at::RecordFunction& function);

// Call it at the end of the operation, whose outputs must have been requested. Returns the bytes
// moved: each input read once and each output written once; of a table only the rows that were
// read. Negative if it is not a kernel: it makes views, allocates, or returns no tensor.
// O(tensors²), few.
double bytes_at_end(const at::RecordFunction& function, const OperationCost& cost);

// Floating-point operations of this thread, counted by shapes where LibTorch dispatches them:
// matrix products, fused attention and convolutions, with multiplications and additions counted
// separately, as torch.utils.flop_counter does. Other operations are left out: they are a few per
// cent of these.

struct FlopsOf {
  double matmul = 0, convolution = 0;
};
// For one operation, such as "aten::addmm". Zero for operations that are left out. O(1).
FlopsOf flops_of(std::string_view name, c10::ArrayRef<const c10::IValue> inputs);

// Counts while it lives; one at a time per thread.
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
