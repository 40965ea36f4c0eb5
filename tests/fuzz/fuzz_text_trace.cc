// Any bytes as a text trace. What is read can be copied, as `lockstep convert` does, and the copy
// reads as the same trace, with the damage of the original and no other.
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
  trace->converted_from = "text";
  std::ostringstream out;
  trace::write_text_trace(out, *trace, tables);
  trace::Tables again_tables;
  const Result<trace::RankTrace> again = trace::read_text_trace(out.view(), "fuzz", again_tables);
  LOCKSTEP_CHECK(again, "what was written can be read");
  LOCKSTEP_CHECK(dump(*again, again_tables) == dump(*trace, tables), "and is the same trace");
}

}  // namespace lockstep
