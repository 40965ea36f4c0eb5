// Search: which points of a grid to try, where there are too many to try all.
//
// Coordinate descent with random restarts. From a random point, one axis after the other in a
// random order, it tries the axis's values with the others as they are, and goes to the best. When
// a round over all axes gained nothing, the point is the best along each axis, and the search
// begins anew at a random point it has not tried. An axis with more than kWholeLine values is tried
// at the distances 1, 2, 4, 8 … to both sides, so that a round costs the logarithm of its length.
//
// What it finds is the best of what it tried, and nothing more: two axes that only pay together can
// hide a better point. No point is asked for twice. The same seed and the same scores give the same
// points, however many of a batch are computed at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <utility>
#include <vector>

// Grid: the points of a sweep, by number. A point has a digit for each axis, which says which of
// the axis's values it has; the last axis counts fastest.

namespace lockstep::sim {

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

inline constexpr std::size_t kWholeLine = 8;

// Less is better. `tier` first: what trains and fits, what does not fit, what does not train.
struct Score {
  int tier = 0;
  double value = 0;

  friend auto operator<=>(const Score&, const Score&) = default;
};

class Search {
 public:
  // `trials`: so many points at most. A grid that has no more is tried whole, in its order.
  Search(const Grid& grid, PointId trials, std::uint64_t seed);

  bool exhaustive() const { return exhaustive_; }
  // The points to try next, in any order; empty: that was all. At most kLargestBatch.
  std::vector<PointId> next();
  // Their scores, in the order of next(); before next() is called again.
  void tell(const std::vector<Score>& scores);

  static constexpr std::size_t kLargestBatch = 4096;

 private:
  std::vector<PointId> line() const;
  PointId untried_point();
  void begin_round();
  void finish_line();

  const Grid& grid_;
  PointId trials_;
  bool exhaustive_;
  std::mt19937_64 random_;
  std::map<PointId, Score> scores_;
  std::vector<PointId> asked_;
  std::optional<PointId> at_;
  std::vector<std::size_t> round_;  // the axes that are left in it, last first
  bool gained_ = false;             // in this round
};

}  // namespace lockstep::sim
