#include "trace/sizes.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::trace {

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

double call_bytes(const Run& run, const Call& call) {
  const Signature& signature = run.tables.signatures[call.signature];
  std::int64_t elements = signature.in_elements;
  if (elements == kNone) elements = signature.out_elements;
  const std::vector<std::string> dtypes = run.tables.names(signature.dtypes);
  if (elements == kNone || dtypes.empty()) return 0;
  return static_cast<double>(elements) *
         static_cast<double>(element_bytes(dtypes.front()).value_or(0));
}

}  // namespace lockstep::trace
