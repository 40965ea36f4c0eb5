// Floating-point operations of what this thread computes, counted where LibTorch dispatches it, by
// the shapes: matrix products, fused attention and convolutions, a multiplication and an addition
// each counted as one operation, as torch.utils.flop_counter does. What else a model computes is
// left out: it is a few per cent of these.
#pragma once

#include <cstdint>
#include <string_view>

#include <ATen/record_function.h>

namespace lockstep {

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

}  // namespace lockstep
