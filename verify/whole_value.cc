#include "verify/whole_value.h"

#include <cmath>
#include <utility>

namespace lockstep {

WholeValue whole_value(const Run& run, const ValueRow& row) {
  const StateMark& first = *row.readings.front().mark;
  WholeValue out{first.hash, first.norm, first.sketch, run.tables.str(first.dtype), row.place};
  if (!row.sharded()) return out;
  out.hash.reset();
  double squares = first.norm.value_or(0) * first.norm.value_or(0);
  for (std::size_t i = 1; i < row.readings.size(); ++i) {
    const StateMark& mark = *row.readings[i].mark;
    squares += mark.norm.value_or(0) * mark.norm.value_or(0);
    if (mark.sketch.size() == out.sketch.size())
      out.sketch = sum(std::move(out.sketch), mark.sketch);
  }
  if (out.norm) out.norm = std::sqrt(squares);
  return out;
}

bool sketches_compare(const WholeValue& a, const WholeValue& b) {
  return !a.sketch.empty() && a.sketch.size() == b.sketch.size();
}

std::optional<double> distance_between(const WholeValue& a, const WholeValue& b) {
  if (a.hash && a.hash == b.hash) return 0;
  if (sketches_compare(a, b)) return norm_estimate(sum(a.sketch, b.sketch, -1));
  if (a.norm && b.norm) return std::abs(*a.norm - *b.norm);
  return std::nullopt;
}

}  // namespace lockstep
