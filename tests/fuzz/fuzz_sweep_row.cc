// Any bytes as a line of a sweep's results: an error, or a row that can be written and is the same
// again.
#include "base/check.h"
#include "sim/sweep/row.h"
#include "tests/fuzz/targets.h"

namespace lockstep {

void fuzz_sweep_row(std::string_view bytes) {
  const Result<sim::Row> row = sim::parse_row(bytes);
  if (!row) {
    LOCKSTEP_CHECK(!row.error().message.empty(), "an error says what is wrong");
    return;
  }
  const std::string line = sim::row_line(*row, true);
  LOCKSTEP_CHECK(line.find('\n') == line.size() - 1, "a row is a line");
  const Result<sim::Row> again = sim::parse_row(line);
  LOCKSTEP_CHECK(again, "what was written can be read");
  LOCKSTEP_CHECK(sim::row_line(*again, true) == line, "and is the same");
  LOCKSTEP_CHECK(
      sim::point_key(row->machine, row->values) == sim::point_key(again->machine, again->values),
      "of the same point");
}

}  // namespace lockstep
