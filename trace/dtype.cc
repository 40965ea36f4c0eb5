#include "trace/dtype.h"

#include <algorithm>
#include <array>
#include <utility>

namespace lockstep {

std::optional<std::int64_t> element_bytes(std::string_view dtype) {
  if (dtype.starts_with("float8_")) return 1;
  static constexpr std::array<std::pair<std::string_view, std::int64_t>, 14> kBytes = {
      {{"float32", 4},
       {"float64", 8},
       {"float16", 2},
       {"bfloat16", 2},
       {"int64", 8},
       {"int32", 4},
       {"int16", 2},
       {"int8", 1},
       {"uint8", 1},
       {"uint16", 2},
       {"uint32", 4},
       {"uint64", 8},
       {"bool", 1},
       {"complex64", 8}}};
  const auto found = std::find_if(kBytes.begin(), kBytes.end(),
                                  [&](const auto& entry) { return entry.first == dtype; });
  if (found == kBytes.end()) return std::nullopt;
  return found->second;
}

}  // namespace lockstep
