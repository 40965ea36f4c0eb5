// Calibrations, and the tables that they are fitted to.
#include <algorithm>
#include <cmath>
#include <string>

#include "base/check.h"
#include "sim/measured/evaluation.h"
#include "sim/measured/measured_table.h"
#include "sim/transformer/calibration.h"
#include "sim/transformer/predict.h"
#include "tests/fuzz/targets.h"

namespace lockstep {

namespace {

template <class T>
bool refused(const Result<T>& read) {
  if (read) return false;
  LOCKSTEP_CHECK(!read.error().message.empty(), "an error says what is wrong");
  LOCKSTEP_CHECK(read.error().location.file == "fuzz.yaml", "and where");
  return true;
}

}  // namespace

// Any bytes as a calibration: errors with their place, or numbers within their bounds and calls
// that cost something.
void fuzz_calibration(std::string_view bytes) {
  const std::string text(bytes);
  if (const auto calibration = sim::parse_calibration(text, "fuzz.yaml"); !refused(calibration)) {
    for (const sim::CostParameter& parameter : sim::cost_parameters()) {
      const double value = calibration->cost.*(parameter.value);
      LOCKSTEP_CHECK(std::isfinite(value) && value > 0, "the schema's bounds hold");
    }
    for (const int ranks : {2, 8, 16})
      for (const double size : {1.0, 1e6, 1e15}) {
        const double seconds =
            sim::collective_seconds(calibration->cost, trace::Op::all_reduce, size,
                                    sim::group_of(calibration->cost, ranks, 1));
        LOCKSTEP_CHECK(std::isfinite(seconds) && seconds > 0, "a call takes time");
      }
  }
}

// Any bytes as a table of measurements: an error, or rows that can be predicted.
void fuzz_measured_table(std::string_view bytes) {
  constexpr std::size_t kPredicted = 4;
  const auto table = sim::parse_measured_table(std::string(bytes), "fuzz.json");
  if (!table) {
    LOCKSTEP_CHECK(!table.error().message.empty(), "an error says what is wrong");
    return;
  }
  LOCKSTEP_CHECK(table->steps.size() + table->collectives.size() <= 2 * sim::kMaxTableRows,
                 "tables are bounded");
  for (std::size_t i = 0; i < std::min(table->steps.size(), kPredicted); ++i) {
    const auto figures = sim::compare_row(table->steps[i], i + 1, {});
    LOCKSTEP_CHECK(figures || !figures.error().message.empty(), "an error says what is wrong");
  }
}

}  // namespace lockstep
