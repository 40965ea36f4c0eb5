// NCCL's logs.
#include "tests/fuzz/fuzz_format.h"
#include "tests/fuzz/targets.h"
#include "trace/formats/format.h"

namespace lockstep {

void fuzz_nccl_log(std::string_view bytes) { fuzz_format(trace::nccl_log_format(), bytes); }

}  // namespace lockstep
