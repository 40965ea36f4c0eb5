// Any bytes as a table of measurements: an error, or rows that can be predicted.
#include <algorithm>
#include <string>

#include "base/check.h"
#include "sim/transformer/evaluation.h"
#include "sim/transformer/measured_table.h"
#include "tests/fuzz/targets.h"

namespace lockstep {

void fuzz_measured_table(std::string_view bytes) {
  constexpr std::size_t kPredicted = 4;
  const auto table = sim::parse_measured_table(std::string(bytes), "fuzz.json");
  if (!table) {
    LOCKSTEP_CHECK(!table.error().message.empty(), "an error says what is wrong");
    return;
  }
  LOCKSTEP_CHECK(table->steps.size() + table->collectives.size() <= 2 * sim::kMostTableRows,
                 "tables are bounded");
  for (std::size_t i = 0; i < std::min(table->steps.size(), kPredicted); ++i) {
    const auto figures = sim::compare_row(table->steps[i], i + 1, {});
    LOCKSTEP_CHECK(figures || !figures.error().message.empty(), "an error says what is wrong");
  }
}

}  // namespace lockstep
