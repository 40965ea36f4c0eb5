// Values by formula, the same in C++ and in the Python that made the reference.
#pragma once

#include <vector>

#include <ATen/ATen.h>

namespace lockstep::runtime {

// sin(step * i + offset) * scale over the flattened tensor, computed in float64.
inline at::Tensor wave(at::IntArrayRef shape, double step, double offset, double scale) {
  const auto count = c10::multiply_integers(shape);
  return (at::sin(at::arange(count, at::kDouble) * step + offset) * scale)
      .to(at::kFloat)
      .reshape(shape);
}

inline double largest_difference(const at::Tensor& a, const std::vector<double>& b) {
  return (a.flatten().to(at::kDouble) - at::tensor(b, at::kDouble)).abs().max().item<double>();
}

}  // namespace lockstep::runtime
