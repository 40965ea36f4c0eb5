// Fingerprints of LibTorch's tensors, taken on the host.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trace/values/fingerprint.h"

namespace lockstep::runtime {

// The fingerprint of a tensor of any type and device, in the order of its logical elements, the
// first at place `first`: of half precision as the floats that they are, of other types as doubles.
// Over LibTorch's threads where it is large; the bits do not depend on how many those are. Throws
// what LibTorch throws (complex numbers, for one, are no doubles).
trace::Fingerprint fingerprint_of(const at::Tensor& tensor, std::uint32_t sketch,
                                  std::uint64_t first = 0);

// Fingerprints that a device takes of what lies on it, in batches: one wait for all tensors of a
// step.

class DeviceFingerprints {
 public:
  virtual ~DeviceFingerprints() = default;

  // Queues the fingerprint of a tensor of this device behind what its current stream has been
  // given: the values are those that the stream then sees, whatever it is given later. `first`: the
  // place of the first element. Waits for nothing. By one thread at a time. Throws what LibTorch
  // throws.
  virtual void take(const at::Tensor& tensor, std::uint64_t first) = 0;

  // Of all tensors that were taken since the last call, in that order. Waits for the device.
  virtual std::vector<trace::Fingerprint> collect() = 0;
};

}  // namespace lockstep::runtime
