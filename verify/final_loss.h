// Do two runs of one job end at the same loss? For a strategy that synchronises in every step, that
// is what everybody asks first: does it train as one process would?
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "trace/run.h"

namespace lockstep {

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
// Why not a few roundings: the order in which gradients are added up makes differences of about u,
// and AdamW divides a gradient that is nothing but such noise by the noise's own size, so that
// parameters without a real gradient part by as much as the learning rate; the loss sees a little
// of that. docs/scenarios.md says what was measured.
double loss_tolerance(std::string_view dtype);

// Nothing where the runs' last steps are not the same one, or one recorded no loss of it.
// O(steps).
std::optional<FinalLoss> final_loss(const Run& run, const Run& reference, std::string_view dtype);

}  // namespace lockstep
