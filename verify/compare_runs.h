// Two runs of one job side by side: another strategy, another number of ranks, another precision.
// Where do their gradients, parameters and losses begin to differ?
//
// Tensors are compared by what the traces record of them. Equal hashes are equal values. Sketches
// give the difference: the mean square of the difference of two sketches estimates the squared
// 2-norm of the tensors' difference (with k values, up to a factor of about 1 ± sqrt(2/k);
// Achlioptas 2003). Norms alone give a lower bound.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trace/run.h"
#include "verify/numbers/value_table.h"

namespace lockstep::verify {

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
  // The first difference beyond its tolerance that earlier differences do not explain.
  std::optional<TensorDifference> first_difference;
  bool drifted = false;         // some are beyond it, and earlier differences explain them
  std::size_t compared = 0;     // values
  std::size_t only_in_one = 0;  // tensors that one run alone recorded
  std::optional<double> max_loss_difference;
};

// `tolerance`: of relative errors; default: the square root of the type's unit roundoff, half of
// its digits. Differences of rounding grow: AdamW divides a gradient that is noise by the size of
// that noise, so parameters without a real gradient come to differ by as much as the learning rate.
// So a difference beyond its tolerance is explained if it is of a gradient, and no more than 100
// times as large as that of the parameters before the step; or of a parameter whose gradient was
// compared.
//
// Where ranks of a run differ, the value of its lowest rank counts (verify() judges such a
// difference). All ranks' parts of a sharded tensor count.
// O(marks log marks).
Comparison compare_runs(const trace::Run& a, const trace::Run& b,
                        std::optional<double> tolerance = {});

// How far two runs of one job ended apart, over many tensors together.

struct Drift {
  std::size_t tensors = 0;  // that both recorded in the last step that they have in common
  double apart = 0;         // |a - b|, 2-norm over all of them
  double size = 0;          // |b|
  double travelled = 0;     // |b - b in the first step recorded|
};

// The drift of the values of `phase` whose names `counts` accepts. Distances are estimated from
// sketches (as compare_runs does): over many tensors the error of the estimate averages out.
// O(marks log marks).
Drift drift_between(const trace::Run& a, const trace::Run& b, Phase phase,
                    const std::function<bool(std::string_view)>& counts);

// The final losses of two runs of one job: does a strategy train as one process would?

struct FinalLoss {
  std::int64_t step = 0;                              // the last of both
  double loss = 0, reference = 0;                     // means over the ranks
  double apart = 0;                                   // |loss - reference| / |reference|
  double tolerance = 0;                               // of `apart`
  bool agrees() const { return apart <= tolerance; }  // never where a loss is NaN
};

// `dtype`: what the forward computes in; half of its digits are the tolerance. Nothing where the
// runs end in different steps, or one recorded no loss of the last step. O(steps).
std::optional<FinalLoss> final_loss(const trace::Run& run, const trace::Run& reference,
                                    std::string_view dtype);

}  // namespace lockstep::verify
