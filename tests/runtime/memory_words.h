// Bytes by what they are for, in few words.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "trace/memory_use.h"

namespace lockstep::runtime {

using Category = trace::MemoryCategory;

// What is not named is 0.
inline trace::MemoryUse use(const std::vector<std::pair<Category, std::int64_t>>& bytes) {
  trace::MemoryUse out;
  for (const auto& [category, count] : bytes) out[category] += count;
  return out;
}

}  // namespace lockstep::runtime
