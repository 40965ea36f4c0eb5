// Any bytes as a ring file. What is read is consistent: dumping it follows every index and id.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "support/trace_dump.h"
#include "trace/ring_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::uint64_t> aligned((size + 7) / 8);
  if (size > 0) std::memcpy(aligned.data(), data, size);
  lockstep::Tables tables;
  const auto trace = lockstep::read_ring_trace(
      {reinterpret_cast<const char*>(aligned.data()), size}, "fuzz", tables);
  if (trace) lockstep::dump(*trace, tables);
  return 0;
}
