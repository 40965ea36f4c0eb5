// What libFuzzer calls: LOCKSTEP_FUZZ_TARGET is one of the functions of targets.h.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/targets.h"

// The prototype is libFuzzer's.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  lockstep::LOCKSTEP_FUZZ_TARGET({reinterpret_cast<const char*>(data), size});
  return 0;
}
