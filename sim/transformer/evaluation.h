// Predicts the rows of a measured table, and says how far off the predictions are.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "sim/machine/machine.h"
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

// A figure of a table, and the row that it is of.
struct ComparedRow {
  std::string label;
  Comparison figure;
  bool fitted = false;  // the calibration was made with it
};

// A whole table, predicted.
struct TableAnswer {
  std::string file;
  std::string calibration;  // what it was predicted by
  std::vector<ComparedRow> rows;
};

// Of a table of steps: every row. Errors: compare_row()'s, with the row.
Result<TableAnswer> predict_steps(const MeasuredTable& table, const Calibration& calibration);

// Of a table of collectives: by measured curves, those of the YAML file `curves_file`; empty: the
// shipped ones. Errors: a file that cannot be read, or is wrong; a call that they do not cover.
Result<TableAnswer> predict_collectives(const MeasuredTable& table, const std::string& curves_file);

// The same as `simulate collective --machine` and scenarios have it, in place of measured curves.
// `machine_file`: where the machine is from. Errors: nodes that do not hold equally many ranks;
// call_time()'s.
Result<TableAnswer> predict_on_machine(const MeasuredTable& table, const Machine& machine,
                                       const std::string& machine_file);

}  // namespace lockstep::sim
