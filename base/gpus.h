// Which GPU of its machine a process uses: the index that nvidia-smi shows.
//
// CUDA numbers the devices that a process sees. CUDA_VISIBLE_DEVICES lists them: with "4,5", CUDA's
// device 1 is nvidia-smi's 5.
#pragma once

#include <optional>

#include "base/launcher.h"

namespace lockstep {

// The index of the device that CUDA calls `device` in this process. Nothing if the list names GPUs
// by their UUIDs ("GPU-8932f937") or has no such entry, or if ROCm's variables are set.
std::optional<int> gpu_of_device(int device, const Environment& get);

}  // namespace lockstep
