// Any bytes as a line of a sweep's results: an error, or a row that can be written and is the same
// again.
#include "base/check.h"
#include "sim/sweep/row.h"
#include "tests/fuzz/targets.h"

namespace lockstep {

void fuzz_sweep_row(std::string_view bytes) {
  const Result<sweep::Row> row = sweep::parse_row(bytes);
  if (!row) {
    LOCKSTEP_CHECK(!row.error().message.empty(), "an error says what is wrong");
    return;
  }
  const std::string line = sweep::row_line(*row, true);
  LOCKSTEP_CHECK(line.find('\n') == line.size() - 1, "a row is a line");
  const Result<sweep::Row> again = sweep::parse_row(line);
  LOCKSTEP_CHECK(again, "what was written can be read");
  LOCKSTEP_CHECK(sweep::row_line(*again, true) == line, "and is the same");
  LOCKSTEP_CHECK(sweep::point_key(row->machine, row->values) ==
                     sweep::point_key(again->machine, again->values),
                 "of the same point");
}

}  // namespace lockstep
