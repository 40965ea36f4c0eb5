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

// One tensor in one step as a run recorded it: of a sharded one all ranks' parts together, else
// what its lowest rank holds.

struct WholeValue {
  std::optional<std::uint64_t> hash;  // not of sharded ones
  std::optional<double> norm;
  Sketch sketch;
  std::string dtype;
  std::uint32_t name_index = 0;  // as ValueRow's

  // The 2-norm: recorded, or estimated from the sketch.
  double size() const { return norm ? *norm : norm_estimate(sketch); }
};

// Puts the parts of a sharded tensor together. O(ranks).
WholeValue whole_value(const trace::Run& run, const ValueRow& row);

// Whether both have sketches of one length.
bool sketches_compare(const WholeValue& a, const WholeValue& b);

// The 2-norm of the difference: 0 where the hashes are equal, else estimated from the sketches,
// else a lower bound from the norms; nothing where the two have nothing in common.
std::optional<double> distance_between(const WholeValue& a, const WholeValue& b);

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

// The relative difference up to which two final losses agree: the square root of the unit roundoff
// of the type that the forward computes in, half of its digits. float32: 2.4e-4, float16: 2.2e-2,
// bfloat16: 6.3e-2. A dtype that is not known counts as float32.
//
// Why not a few roundings: the order in which gradients are added makes differences of about u.
// AdamW divides a gradient that consists of such noise by the noise's own size, so parameters
// without a real gradient come to differ by as much as the learning rate, which changes the loss a
// little. docs/scenarios.md has measurements.
double loss_tolerance(std::string_view dtype);

// Nothing where the runs end in different steps, or one recorded no loss of the last step.
// O(steps).
std::optional<FinalLoss> final_loss(const trace::Run& run, const trace::Run& reference,
                                    std::string_view dtype);

}  // namespace lockstep::verify
