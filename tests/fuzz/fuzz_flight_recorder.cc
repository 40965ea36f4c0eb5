// Flight Recorder dumps, pickle and JSON.
#include "tests/fuzz/fuzz_format.h"
#include "tests/fuzz/targets.h"
#include "trace/formats/format.h"

namespace lockstep {

void fuzz_flight_recorder(std::string_view bytes) {
  fuzz_format(trace::flight_recorder_format(), bytes);
}

}  // namespace lockstep
