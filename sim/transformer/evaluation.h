// Predicts the rows of a measured table, and says how far off the predictions are.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "sim/transformer/calibration.h"
#include "sim/transformer/measured_table.h"
#include "sim/transformer/predict.h"

namespace lockstep::sim {

// One figure of one row: seconds, tokens per second and GPU, or bytes.
struct Comparison {
  enum class Kind : std::uint8_t { seconds, tokens, memory } kind = Kind::seconds;
  std::size_t row = 0;  // of the table, from 1
  double predicted = 0, measured = 0;
  double error() const { return predicted / measured - 1; }
};

// Of the absolute relative errors: mean (MAPE), median, largest. Zero where there are none.
struct ErrorSummary {
  std::size_t count = 0;
  double mean = 0, median = 0, largest = 0;
};

ErrorSummary summarize(const std::vector<Comparison>& comparisons);

// The step's prediction. Where the table leaves out the micro-batch, and with it the chunks of the
// interleaved schedule, the fastest of 1, 2, 4, 8 and 16 sequences and of 1 and 2 chunks.
// Errors: predict_step's.
Result<StepPrediction> predict_measured(const MeasuredStep& step, const CostParameters& cost);

// All figures of one row: its time or tokens, and its memory where that was measured.
Result<std::vector<Comparison>> compare_row(const MeasuredStep& step, std::size_t row,
                                            const CostParameters& cost);

}  // namespace lockstep::sim
