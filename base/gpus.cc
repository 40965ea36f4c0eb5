#include "base/gpus.h"

#include <string_view>

namespace lockstep {

std::optional<int> gpu_of_device(int device, const Environment& get) {
  // LibTorch for ROCm calls its devices "cuda" as well.
  for (const char* const list : {"HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"})
    if (get(list) != nullptr) return std::nullopt;
  if (device < 0) return std::nullopt;
  const char* const visible = get("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr) return device;
  std::string_view left = visible;
  for (int skipped = 0; skipped < device; ++skipped) {
    const std::size_t comma = left.find(',');
    if (comma == std::string_view::npos) return std::nullopt;
    left.remove_prefix(comma + 1);
  }
  return launcher_number(left.substr(0, left.find(',')));
}

}  // namespace lockstep
