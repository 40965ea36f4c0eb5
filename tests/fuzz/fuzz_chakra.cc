// Chakra execution traces: see fuzz_format.h.
#include <cstddef>
#include <cstdint>

#include "fuzz/fuzz_format.h"
#include "trace/formats/chakra.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return lockstep::fuzz_format(lockstep::chakra_format(), data, size);
}
