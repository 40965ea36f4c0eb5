// Any bytes as a text trace. What is read can be written, reads again without damage, and is the
// same trace.
#include <sstream>

#include "base/check.h"
#include "tests/fuzz/targets.h"
#include "tests/support/trace_dump.h"
#include "trace/formats/text/text_trace.h"

namespace lockstep {

void fuzz_text_trace(std::string_view bytes) {
  trace::Tables tables;
  Result<trace::RankTrace> trace = trace::read_text_trace(bytes, "fuzz", tables);
  if (!trace) return;
  std::ostringstream out;
  trace::write_text_trace(out, *trace, tables);
  trace::Tables again_tables;
  const Result<trace::RankTrace> again = trace::read_text_trace(out.view(), "fuzz", again_tables);
  LOCKSTEP_CHECK(again && again->damaged_count == 0, "what was written reads without damage");
  trace->damaged_count = 0;
  LOCKSTEP_CHECK(dump(*again, again_tables) == dump(*trace, tables), "and is the same trace");
}

}  // namespace lockstep
