// Fingerprints of LibTorch tensors, computed on the host.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trace/values/fingerprint.h"

namespace lockstep::runtime {

// The fingerprint of a tensor of any type and device, over its logical elements in order; `first`
// is the index of the first one. Half precision is read as float, other types as double. Large
// tensors use LibTorch's threads; the result does not depend on their number. Throws what LibTorch
// throws (for example for complex numbers).
trace::Fingerprint fingerprint_of(const at::Tensor& tensor, std::uint32_t sketch,
                                  std::uint64_t first = 0);

// Fingerprints computed on a device, in batches: the host waits once for all tensors of a step.

class DeviceFingerprints {
 public:
  virtual ~DeviceFingerprints() = default;

  // Queues the fingerprint of a tensor of this device after the current stream's work, so it sees
  // the values that the stream has then, whatever is queued later. `first`: index of the first
  // element. Does not wait. One thread at a time. Throws what LibTorch throws.
  virtual void take(const at::Tensor& tensor, std::uint64_t first) = 0;

  // The fingerprints of all tensors taken since the last call, in order. Waits for the device.
  virtual std::vector<trace::Fingerprint> collect() = 0;
};

}  // namespace lockstep::runtime
