#include "base/gpus.h"

#include <cstddef>
#include <string_view>
#include <vector>

#include "base/text.h"

namespace lockstep {

std::optional<int> gpu_of_device(int device, const Environment& get) {
  // LibTorch for ROCm calls its devices "cuda" as well.
  for (const char* const list : {"HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"})
    if (get(list) != nullptr) return std::nullopt;
  if (device < 0) return std::nullopt;
  const char* const visible = get("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr) return device;
  const std::vector<std::string_view> listed = split(visible, ',');
  const auto index = static_cast<std::size_t>(device);
  return index < listed.size() ? launcher_number(listed[index]) : std::nullopt;
}

}  // namespace lockstep
