// Fits the cost parameters of a machine type to a few measured rows.
//
// The loss has two parts. The first is the logarithmic error of each row, quadratic up to about 5 %
// and linear beyond, so that a row that something else slowed down does not pull the others along.
// The second is how far each parameter moves from its start, also in logarithms, so that a
// parameter about which the rows say nothing stays at its data sheet value. Minimised by
// Levenberg-Marquardt on the logarithms, with derivatives by finite differences; deterministic.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "sim/transformer/calibration.h"
#include "sim/transformer/measured_table.h"

namespace lockstep::sim {

struct FitOptions {
  std::vector<std::string> parameters;  // names; the others stay as they are
  double stiffness = 0.1;  // weight of a move from the start, against a row's error of 1
  int most_rounds = 40;
};

struct Fit {
  CostParameters cost;
  double before = 0, after = 0;  // mean absolute relative error of the rows
  int rounds = 0;
};

// Errors: no rows, no parameters, an unknown parameter, a row that cannot be predicted.
Result<Fit> fit_parameters(const std::vector<MeasuredStep>& rows, const CostParameters& start,
                           const FitOptions& options);

}  // namespace lockstep::sim
