// NCCL's logs: see fuzz_format.h.
#include <cstddef>
#include <cstdint>

#include "fuzz/fuzz_format.h"
#include "trace/formats/nccl_log.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return lockstep::fuzz_format(lockstep::nccl_log_format(), data, size);
}
