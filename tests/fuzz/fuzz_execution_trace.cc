// PyTorch's execution traces.
#include "tests/fuzz/fuzz_format.h"
#include "tests/fuzz/targets.h"
#include "trace/formats/format.h"

namespace lockstep {

void fuzz_execution_trace(std::string_view bytes) {
  fuzz_format(trace::execution_trace_format(), bytes);
}

}  // namespace lockstep
