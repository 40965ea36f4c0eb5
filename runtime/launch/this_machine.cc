#include "runtime/launch/this_machine.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "base/environment.h"
#include "base/text.h"

namespace lockstep::runtime {

namespace fs = std::filesystem;

WorkerSearch worker_search_of_this_process() {
  std::error_code unknown;
  return {environment_variable("LOCKSTEP_WORKER"),
          fs::read_symlink("/proc/self/exe", unknown).string(), environment_variable("PATH")};
}

Result<std::string> find_worker(const WorkerSearch& search) {
  if (!search.named.empty()) {
    if (is_program(search.named)) return search.named;
    return Error{fmt::format("LOCKSTEP_WORKER is not a program: {}", printable(search.named)),
                 {},
                 "unset it, or set it to the path of lockstep-worker"};
  }
  constexpr const char* kWorker = "lockstep-worker";
  const std::string neighbour = (fs::path(search.program).parent_path() / kWorker).string();
  if (is_program(neighbour)) return neighbour;
  if (std::string found = find_program(kWorker, search.path); !found.empty()) return found;
  return Error{
      "lockstep-worker, which trains, is neither next to lockstep nor in PATH",
      {},
      "build it from Lockstep's source, with LibTorch: scripts/demo; or set LOCKSTEP_WORKER "
      "to its path"};
}

namespace {

// "nvidia0", and not "nvidiactl".
bool is_gpu(const std::string& name) {
  constexpr std::string_view kBeginning = "nvidia";
  return name.size() > kBeginning.size() && name.starts_with(kBeginning) &&
         std::all_of(name.begin() + kBeginning.size(), name.end(),
                     [](char c) { return c >= '0' && c <= '9'; });
}

// CUDA uses the devices of the list up to the first invalid one. "0,1" counts 2; "0,-1,1" counts 1;
// "-1" and "" count 0.
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
    // WSL (dxg) and Jetson (nvhost-gpu, nvgpu) have no nvidia<N> files.
    if (name == "dxg" || name == "nvhost-gpu" || name == "nvgpu") return std::nullopt;
    if (is_gpu(name)) ++count;
  }
  return search.visible ? std::min(count, count_listed(*search.visible)) : count;
}

}  // namespace lockstep::runtime
