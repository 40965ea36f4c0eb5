#include "sim/sweep/grid.h"

#include "base/check.h"

namespace lockstep::sweep {

std::optional<Grid> Grid::of(std::vector<std::size_t> sizes) {
  PointId size = 1;
  for (const std::size_t values : sizes) {
    LOCKSTEP_CHECK(values > 0, "an axis without values");
    if (size > kMostPoints / values) return std::nullopt;
    size *= values;
  }
  return Grid(std::move(sizes), size);
}

Digits Grid::digits(PointId point) const {
  Digits out(sizes_.size());
  for (std::size_t axis = sizes_.size(); axis-- > 0;) {
    out[axis] = static_cast<std::size_t>(point % sizes_[axis]);
    point /= sizes_[axis];
  }
  return out;
}

PointId Grid::point(const Digits& digits) const {
  PointId out = 0;
  for (std::size_t axis = 0; axis < sizes_.size(); ++axis) out = out * sizes_[axis] + digits[axis];
  return out;
}

}  // namespace lockstep::sweep
