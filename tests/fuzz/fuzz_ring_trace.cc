// Any bytes as a ring file. What is read is consistent: dumping it follows every index and id, also
// once its communicators are put together.
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "tests/fuzz/fuzz_format.h"
#include "tests/fuzz/targets.h"
#include "tests/support/trace_dump.h"
#include "trace/formats/format.h"
#include "trace/formats/ring/reader.h"
#include "trace/load.h"

namespace lockstep {

void fuzz_ring_trace(std::string_view bytes) {
  // Mapped files start on a page.
  std::vector<std::uint64_t> aligned((bytes.size() + 7) / 8);
  if (!bytes.empty()) std::memcpy(aligned.data(), bytes.data(), bytes.size());
  trace::Tables tables;
  Result<trace::RankTrace> trace = trace::read_ring_trace(
      {reinterpret_cast<const char*>(aligned.data()), bytes.size()}, "fuzz", tables);
  if (!trace) return;
  dump(*trace, tables);
  std::vector<trace::RankTrace> traces;
  traces.push_back(std::move(*trace));
  trace::ring_format().link(traces, tables);
  dump(traces.front(), tables);
  fuzz_judging(trace::assemble_run(std::move(tables), std::move(traces)));
}

}  // namespace lockstep
