#include "runtime/launch/gpus.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <system_error>

namespace lockstep {

namespace {

namespace fs = std::filesystem;

// "nvidia0", and not "nvidiactl".
bool is_gpu(const std::string& name) {
  constexpr std::string_view kBeginning = "nvidia";
  return name.size() > kBeginning.size() && name.starts_with(kBeginning) &&
         std::all_of(name.begin() + kBeginning.size(), name.end(),
                     [](char c) { return c >= '0' && c <= '9'; });
}

// CUDA takes the list's devices up to the first that is none: "-1" and "" hide all.
int count_listed(const std::string& visible) {
  std::istringstream list(visible);
  int count = 0;
  for (std::string entry; std::getline(list, entry, ','); ++count) {
    if (entry.empty() || entry.starts_with("-")) break;
  }
  return count;
}

}  // namespace

GpuSearch gpu_search_of_this_process() {
  GpuSearch out;
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) out.visible = visible;
  return out;
}

std::optional<int> count_gpus(const GpuSearch& search) {
  std::error_code failed;
  int count = 0;
  for (fs::directory_iterator it(search.devices, failed), end; !failed && it != end;
       it.increment(failed)) {
    const std::string name = it->path().filename().string();
    if (name == "dxg" || name == "nvhost-gpu" || name == "nvgpu") return std::nullopt;
    if (is_gpu(name)) ++count;
  }
  return search.visible ? std::min(count, count_listed(*search.visible)) : count;
}

}  // namespace lockstep
