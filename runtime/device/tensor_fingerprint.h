// Fingerprints of LibTorch's tensors, taken on the host.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "trace/values/fingerprint.h"

namespace lockstep {

// The fingerprint of a tensor of any type and device, in the order of its logical elements, the
// first at place `first`: of half precision as the floats that they are, of other types as doubles.
// Over LibTorch's threads where it is large; the bits do not depend on how many those are. Throws
// what LibTorch throws (complex numbers, for one, are no doubles).
Fingerprint fingerprint_of(const at::Tensor& tensor, std::uint32_t sketch, std::uint64_t first = 0);

}  // namespace lockstep
