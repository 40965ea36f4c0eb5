// Profiles of torch.profiler.
#include "tests/fuzz/fuzz_format.h"
#include "tests/fuzz/targets.h"
#include "trace/formats/format.h"

namespace lockstep {

void fuzz_kineto(std::string_view bytes) { fuzz_format(trace::kineto_format(), bytes); }

}  // namespace lockstep
