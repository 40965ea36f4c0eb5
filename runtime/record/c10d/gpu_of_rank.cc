#include "runtime/record/c10d/gpu_of_rank.h"

#include <optional>
#include <utility>

#include "base/gpus.h"

namespace lockstep::runtime {

GpuOfRank::GpuOfRank(trace::RingWriter& ring, Environment get)
    : ring_(ring), get_(std::move(get)) {}

void GpuOfRank::write(int device) {
  if (const std::optional<int> gpu = gpu_of_device(device, get_)) ring_.use_gpu(*gpu);
}

void GpuOfRank::uses(c10::Device device) {
  if (!device.is_cuda() || !device.has_index()) return;
  if (is_known_.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(mutex_);
  if (!is_known_.exchange(true)) write(device.index());
}

void GpuOfRank::uses_nccl() {
  const std::lock_guard lock(mutex_);
  if (is_known_) return;
  if (const std::optional<int> local_rank = launched_local_rank(get_)) write(*local_rank);
}

}  // namespace lockstep::runtime
