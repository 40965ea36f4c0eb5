// Any bytes as a text trace. What is read can be written, reads again without damage, and is the
// same trace.
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string_view>

#include "base/check.h"
#include "support/trace_dump.h"
#include "trace/text_format.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep;  // NOLINT: an entry point cannot stand in the namespace
  Tables tables;
  Result<RankTrace> trace =
      read_text_trace({reinterpret_cast<const char*>(data), size}, "fuzz", tables);
  if (!trace) return 0;
  std::ostringstream out;
  write_text_trace(out, *trace, tables);
  Tables again_tables;
  const Result<RankTrace> again = read_text_trace(out.view(), "fuzz", again_tables);
  LOCKSTEP_CHECK(again && again->damaged_count == 0, "what was written reads without damage");
  trace->damaged_count = 0;
  LOCKSTEP_CHECK(dump(*again, again_tables) == dump(*trace, tables), "and is the same trace");
  return 0;
}
