// Chakra execution traces.
#include "tests/fuzz/fuzz_format.h"
#include "tests/fuzz/targets.h"
#include "trace/formats/format.h"

namespace lockstep {

void fuzz_chakra(std::string_view bytes) { fuzz_format(trace::chakra_format(), bytes); }

}  // namespace lockstep
