// The GPU kernel for fingerprints: its source text, and the evaluation of its results.
#pragma once

#include <cstdint>
#include <span>

#include "base/embedded_file.h"
#include "runtime/device/kernel_sums.h"
#include "runtime/device/nvrtc.h"
#include "trace/values/fingerprint.h"

namespace lockstep::runtime {

// fingerprint_kernel.cu and the headers that it includes.
KernelText fingerprint_kernel();

// These files, the kernel first.
std::span<const EmbeddedFile> fingerprint_kernel_files();

inline constexpr unsigned kFingerprintThreads = 256;  // per block, as in the source text

// The number of blocks for a tensor with `elements` elements on a device with `multiprocessors`
// multiprocessors.
unsigned fingerprint_blocks(std::uint64_t elements, unsigned multiprocessors);

// `k`: number of sketch values, at most kSketchValues.
trace::Fingerprint fingerprint_of(const fingerprinting::KernelSums& sums, std::uint64_t elements,
                                  std::uint32_t k);

}  // namespace lockstep::runtime
