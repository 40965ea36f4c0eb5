// torchcomms' collective log.
#include "tests/fuzz/fuzz_format.h"
#include "tests/fuzz/targets.h"
#include "trace/formats/format.h"

namespace lockstep {

void fuzz_clog(std::string_view bytes) { fuzz_format(trace::clog_format(), bytes); }

}  // namespace lockstep
