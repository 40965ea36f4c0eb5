// Search: which points of a grid to try if there are too many to try all.
//
// Coordinate descent with random restarts. From a random point it tries the values of one axis with
// all others fixed, moves to the best, and goes on with the next axis, in random order. When a
// round over all axes gained nothing, the point is the best along each axis, and the search
// restarts at a random point that was not tried. An axis with more than kWholeLine values is tried
// at the distances 1, 2, 4, 8 … on both sides, so a round costs the logarithm of its length.
//
// The result is the best of the points tried, not of the grid: two axes that only pay off together
// can hide a better one. No point is asked for twice. The same seed and scores give the same
// points, however many of a batch are computed at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <utility>
#include <vector>

namespace lockstep::sim {

// Grid: the points of a sweep, by number. A point has a digit for each axis, the index of its
// value; the last axis varies fastest.

using PointId = std::uint64_t;
using Digits = std::vector<std::size_t>;

inline constexpr PointId kMaxPoints = PointId{1} << 62U;

class Grid {
 public:
  // `sizes`: the number of values of each axis, at least one. Empty: more than kMaxPoints.
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

// Less is better. `tier` is compared first: 0 trains and fits, 1 does not fit, 2 does not train.
struct Score {
  int tier = 0;
  double value = 0;

  friend auto operator<=>(const Score&, const Score&) = default;
};

class Search {
 public:
  // `trials`: the most points to try. A grid that has no more is tried completely, in its order.
  Search(const Grid& grid, PointId trials, std::uint64_t seed);

  bool exhaustive() const { return exhaustive_; }
  // The points to try next, at most kLargestBatch; empty: done. They may be tried in any order.
  std::vector<PointId> next();
  // Takes the scores of the points that next() returned last, in their order. Call it before next()
  // is called again.
  void add_scores(const std::vector<Score>& scores);

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
  std::vector<PointId> batch_;      // what next() returned, until its scores come
  std::optional<PointId> current_;  // the best point of this descent; empty: a new one begins
  std::vector<std::size_t> round_;  // the axes that are left in this round, the next one last
  bool round_gained_ = false;
};

}  // namespace lockstep::sim
