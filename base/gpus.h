// Which GPU of its machine a process uses: the index that nvidia-smi shows.
//
// CUDA counts the devices of a process. CUDA_VISIBLE_DEVICES says which they are: with "4,5",
// CUDA's device 1 is nvidia-smi's 5.
#pragma once

#include <optional>

#include "base/launcher.h"

namespace lockstep {

// The index of the device that CUDA calls `device` in this process. Nothing where the list names
// GPUs by their UUIDs ("GPU-8932f937") or has no such entry, and where ROCm's lists apply.
std::optional<int> gpu_of_device(int device, const Environment& get);

}  // namespace lockstep
