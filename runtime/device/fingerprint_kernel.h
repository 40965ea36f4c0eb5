// The GPU's kernel for fingerprints: its text, and what to make of what it leaves.
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

inline constexpr unsigned kFingerprintThreads = 256;  // of a block, as the text says

// How many blocks are worth a tensor of so many elements, on a device with so many multiprocessors.
unsigned fingerprint_blocks(std::uint64_t elements, unsigned multiprocessors);

// `k`: values of the sketch, at most kSketchValues.
trace::Fingerprint fingerprint_of(const fingerprinting::KernelSums& sums, std::uint64_t elements,
                                  std::uint32_t k);

}  // namespace lockstep::runtime
