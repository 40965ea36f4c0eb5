// Chakra execution traces.
#include "fuzz/fuzz_format.h"
#include "fuzz/targets.h"
#include "trace/formats/chakra.h"

namespace lockstep {

void fuzz_chakra(std::string_view bytes) { fuzz_format(chakra_format(), bytes); }

}  // namespace lockstep
