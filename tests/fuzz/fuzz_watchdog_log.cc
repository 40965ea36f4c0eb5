// Messages of PyTorch's NCCL watchdog.
#include "tests/fuzz/fuzz_format.h"
#include "tests/fuzz/targets.h"
#include "trace/formats/format.h"

namespace lockstep {

void fuzz_watchdog_log(std::string_view bytes) { fuzz_format(trace::watchdog_log_format(), bytes); }

}  // namespace lockstep
