// One tensor in one step as a run recorded it: of a sharded one all ranks' parts together, else
// what its lowest rank holds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "verify/numbers/sketch.h"
#include "verify/numbers/value_table.h"

namespace lockstep {

struct WholeValue {
  std::optional<std::uint64_t> hash;  // not of sharded ones
  std::optional<double> norm;
  Sketch sketch;
  std::string dtype;
  std::uint32_t place = 0;  // as ValueRow's

  // The 2-norm: recorded, or estimated from the sketch.
  double size() const { return norm ? *norm : norm_estimate(sketch); }
};

WholeValue whole_value(const Run& run, const ValueRow& row);

// Whether both have sketches of one length.
bool sketches_compare(const WholeValue& a, const WholeValue& b);

// The 2-norm of the difference: 0 where the hashes are equal, else estimated from the sketches,
// else a lower bound from the norms; nothing where the two have nothing in common.
std::optional<double> distance_between(const WholeValue& a, const WholeValue& b);

}  // namespace lockstep
