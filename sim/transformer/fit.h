// Fits the cost parameters of a machine type to a few measured rows.
//
// Minimised is the sum of the rows' logarithmic errors, quadratic up to 5 % and linear beyond (a
// row that something else has slowed down does not pull the rest along), and of how far each
// parameter goes from where it started, in logarithms too: what the rows say nothing about stays
// what the data sheet says. Levenberg-Marquardt on the logarithms, derivatives by differences;
// deterministic.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "sim/transformer/calibration.h"
#include "sim/transformer/measured_table.h"

namespace lockstep::sim {

struct FitOptions {
  std::vector<std::string> parameters;  // names; the others stay as they are
  double stiffness = 0.1;               // weight of leaving the start, against a row's error of 1
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
