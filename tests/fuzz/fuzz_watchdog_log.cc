// Messages of PyTorch's NCCL watchdog: see fuzz_format.h.
#include <cstddef>
#include <cstdint>

#include "fuzz/fuzz_format.h"
#include "trace/formats/watchdog_log.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return lockstep::fuzz_format(lockstep::watchdog_log_format(), data, size);
}
