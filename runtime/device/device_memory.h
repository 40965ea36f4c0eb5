// What a device's caching allocator counts.
#pragma once

#include <cstdint>

namespace lockstep {

struct DeviceMemory {
  std::int64_t allocated = 0;  // bytes in tensors now
  std::int64_t peak = 0;       // the most there ever were
  std::int64_t reserved = 0;   // bytes taken from the device, at most
};

}  // namespace lockstep
