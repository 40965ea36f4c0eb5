// How many GPUs there are, for what can be said before a worker is started. What CUDA itself finds
// is the worker's to say.
#pragma once

#include <optional>
#include <string>

namespace lockstep {

// What the count looks at; passed in so that tests need no GPU.
struct GpuSearch {
  std::string devices = "/dev";        // nvidia0, nvidia1, …
  std::optional<std::string> visible;  // CUDA_VISIBLE_DEVICES; nothing: not set
};
GpuSearch gpu_search_of_this_process();

// NVIDIA's GPUs that a worker may use. Nothing where these files do not tell (Jetson, WSL).
std::optional<int> count_gpus(const GpuSearch& search);

}  // namespace lockstep
