// Floating-point operations of what this thread computes, counted where LibTorch dispatches it, by
// the shapes: matrix products and convolutions, a multiplication and an addition each counted as
// one operation, as torch.utils.flop_counter does. What else a model computes is left out: it is a
// few per cent of these.
#pragma once

#include <cstdint>

#include <ATen/record_function.h>

namespace lockstep {

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
