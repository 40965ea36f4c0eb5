// Two runs of one job side by side: another strategy, another number of ranks, another precision.
// Where do their gradients, parameters and losses part?
//
// What is compared is what the traces record of a tensor: equal hashes are equal values; sketches
// give the difference: the mean square of the difference of two sketches is the square of the
// 2-norm of the tensors' difference, on average over the signs (with k values it is off by a factor
// of about 1 ± sqrt(2/k); Achlioptas 2003). Norms alone give a lower bound.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trace/run.h"
#include "verify/numbers/value_table.h"

namespace lockstep {

struct TensorDifference {
  std::int64_t n = 0;
  Phase phase{};  // synced_grad or param
  std::string name;
  double error = 0;              // |a - b| / |b|, 2-norms
  double ratio = 1;              // |a| / |b|
  std::optional<double> cosine;  // of the angle between them; nothing without sketches
  bool lower_bound = false;      // from norms alone
  double tolerance = 0;          // what rounding may come to, for its type
};

struct StepDifference {
  std::int64_t n = 0;
  std::optional<double> loss_a, loss_b;                 // mean over the ranks
  std::optional<TensorDifference> gradient, parameter;  // the worst of each
};

struct Comparison {
  std::vector<StepDifference> steps;  // that both runs have something of
  // The first that is beyond its tolerance, and that earlier differences do not explain.
  std::optional<TensorDifference> parted;
  bool drifted = false;         // some are beyond it, and rounding that grew explains them
  std::size_t compared = 0;     // values
  std::size_t only_in_one = 0;  // tensors that one run alone recorded
  std::optional<double> max_loss_difference;
};

// `tolerance`: of relative errors; left out: the square root of the type's unit roundoff, half of
// its digits. Differences of rounding grow: AdamW divides a gradient that is noise by the size of
// that noise, so that parameters without a real gradient part by as much as the learning rate. So a
// gradient beyond its tolerance is explained where it is no more than 100 times as far apart as the
// parameters were before the step, and a parameter where its gradient was compared as well.
//
// Where ranks of a run differ, the value of its lowest rank counts (verify() judges that); of
// sharded tensors all ranks' parts.
// O(marks log marks).
Comparison compare_runs(const Run& a, const Run& b, std::optional<double> tolerance = {});

}  // namespace lockstep
