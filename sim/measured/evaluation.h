// Predicts the rows of a measured table and measures how far off the predictions are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "sim/machine/machine.h"
#include "sim/measured/measured_table.h"
#include "sim/transformer/calibration.h"
#include "sim/transformer/predict.h"

namespace lockstep::sim {

// One figure of one row: seconds, tokens per second and GPU, or bytes.
struct Comparison {
  enum class Kind : std::uint8_t { seconds, tokens, memory } kind = Kind::seconds;
  std::size_t row = 0;  // of the table, counted from 1
  double predicted = 0, measured = 0;
  double error() const { return predicted / measured - 1; }
};

// Mean (MAPE), median and maximum of the absolute relative errors. 0 where there are none.
struct ErrorSummary {
  std::size_t count = 0;
  double mean = 0, median = 0, largest = 0;
};

ErrorSummary summarize(const std::vector<Comparison>& comparisons);

// Predicts a step. Where the table does not give the micro-batch, and with it the chunks of the
// interleaved schedule, the fastest of 1, 2, 4, 8 and 16 sequences with 1 or 2 chunks. Errors:
// predict_step()'s; of several attempts the first one's, if all fail.
Result<StepPrediction> predict_measured(const MeasuredStep& step, const CostParameters& cost);

// Compares all figures of one row: its time or tokens, and its memory if that was measured. Errors:
// predict_measured()'s.
Result<std::vector<Comparison>> compare_row(const MeasuredStep& step, std::size_t row,
                                            const CostParameters& cost);

// A figure of a table, with its row's label.
struct ComparedRow {
  std::string label;
  Comparison figure;
  bool fitted = false;  // the calibration was fitted to this row
};

// The predictions for a whole table.
struct TableAnswer {
  std::string file;
  std::string calibration;  // what predicted it
  std::string letters;      // what those of the labels stand for; empty where there are none
  std::vector<ComparedRow> rows;
};

// Predicts every row of a table of steps. Errors: compare_row()'s, with the row.
Result<TableAnswer> predict_steps(const MeasuredTable& table, const Calibration& calibration);

// Predicts a table of collectives by the shipped machines that have measurements of its machines.
// Errors: a machine that none of them has measured; price()'s.
Result<TableAnswer> predict_collectives(const MeasuredTable& table);

// Predicts a table of collectives by a machine's model, as `simulate collective --machine` and
// scenarios do. `machine_file`: where the machine is from. Errors: ranks that the nodes do not
// divide; price()'s.
Result<TableAnswer> predict_on_machine(const MeasuredTable& table, const Machine& machine,
                                       const std::string& machine_file);

}  // namespace lockstep::sim
