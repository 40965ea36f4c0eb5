// Profiles of torch.profiler.
#include "fuzz/fuzz_format.h"
#include "fuzz/targets.h"
#include "trace/formats/kineto.h"

namespace lockstep {

void fuzz_kineto(std::string_view bytes) { fuzz_format(kineto_format(), bytes); }

}  // namespace lockstep
