// Fingerprints that a CUDA device takes with a kernel of our own (watch/fingerprint_kernel.cu).
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "runtime/device/tensor_fingerprint.h"

namespace lockstep::runtime {

// Fingerprints of the tensors on CUDA device `index`. Compiles the kernel for it: a few seconds.
// `sketch`: values of a sketch, at most kSketchValues. Errors: no driver, no NVRTC, or an NVRTC
// that does not know the device. Throws what LibTorch throws.
Result<std::unique_ptr<DeviceFingerprints>> make_cuda_fingerprints(int index, std::uint32_t sketch);

}  // namespace lockstep::runtime
