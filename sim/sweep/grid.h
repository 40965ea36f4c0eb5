// Grid: the points of a sweep, by number. A point has a digit for each axis, which says which of
// the axis's values it has; the last axis counts fastest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep::sweep {

using PointId = std::uint64_t;
using Digits = std::vector<std::size_t>;

inline constexpr PointId kMostPoints = PointId{1} << 62U;

class Grid {
 public:
  // `sizes`: how many values each axis has, at least one. Nothing: more than kMostPoints.
  static std::optional<Grid> of(std::vector<std::size_t> sizes);

  std::size_t axes() const { return sizes_.size(); }
  std::size_t values(std::size_t axis) const { return sizes_[axis]; }
  PointId size() const { return size_; }
  Digits digits(PointId point) const;
  PointId point(const Digits& digits) const;

 private:
  explicit Grid(std::vector<std::size_t> sizes, PointId size)
      : sizes_(std::move(sizes)), size_(size) {}

  std::vector<std::size_t> sizes_;
  PointId size_;
};

}  // namespace lockstep::sweep
