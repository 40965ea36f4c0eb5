// Bytes by what they are for, in few words.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "trace/memory_use.h"

namespace lockstep {

using Category = MemoryCategory;

// What is not named is 0.
inline MemoryUse use(const std::vector<std::pair<Category, std::int64_t>>& bytes) {
  MemoryUse out;
  for (const auto& [category, count] : bytes) out[category] += count;
  return out;
}

}  // namespace lockstep
