// How far two runs of one job ended apart, over many tensors together.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "trace/run.h"
#include "verify/numbers/value_table.h"

namespace lockstep {

struct Drift {
  std::size_t tensors = 0;  // that both recorded in the last step that they have in common
  double apart = 0;         // |a - b|, 2-norm over all of them
  double size = 0;          // |b|
  double travelled = 0;     // |b - b in the first step recorded|
};

// Of the values of `phase` whose names `counts` accepts. Distances are estimated from sketches (as
// compare_runs does): over many tensors the error of the estimate averages out.
// O(marks log marks).
Drift drift_between(const Run& a, const Run& b, Phase phase,
                    const std::function<bool(std::string_view)>& counts);

}  // namespace lockstep
