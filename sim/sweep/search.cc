#include "sim/sweep/search.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace lockstep::sim {

std::optional<Grid> Grid::of(std::vector<std::size_t> sizes) {
  PointId size = 1;
  for (const std::size_t values : sizes) {
    LOCKSTEP_CHECK(values > 0, "an axis without values");
    if (size > kMaxPoints / values) return std::nullopt;
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

Search::Search(const Grid& grid, PointId trials, std::uint64_t seed)
    : grid_(grid), trials_(trials), exhaustive_(grid.size() <= trials), random_(seed) {}

// A draw is the generator modulo a count far below 2^64: the same on every machine, unlike
// std::uniform_int_distribution.
PointId Search::untried_point() {
  PointId point = random_() % grid_.size();
  // Terminates: fewer points are tried than there are.
  while (scores_.contains(point)) point = (point + 1) % grid_.size();
  return point;
}

void Search::begin_round() {
  round_.resize(grid_.axes());
  for (std::size_t axis = 0; axis < round_.size(); ++axis) {
    // A random order of the axes (Fisher and Yates).
    round_[axis] = axis;
    std::swap(round_[axis], round_[random_() % (axis + 1)]);
  }
  round_gained_ = false;
}

// The points to try along the axis that is next: all its values, or on a long axis those at the
// distances 1, 2, 4, … on both sides.
std::vector<PointId> Search::line() const {
  Digits digits = grid_.digits(*current_);
  const std::size_t axis = round_.back();
  const std::size_t here = digits[axis];
  std::vector<PointId> out;
  const auto add = [&](std::size_t value) {
    digits[axis] = value;
    out.push_back(grid_.point(digits));
  };
  if (grid_.values(axis) <= kWholeLine) {
    for (std::size_t value = 0; value < grid_.values(axis); ++value) add(value);
    return out;
  }
  add(here);
  for (std::size_t distance = 1; distance < grid_.values(axis); distance *= 2) {
    if (distance <= here) add(here - distance);
    if (here + distance < grid_.values(axis)) add(here + distance);
  }
  return out;
}

std::vector<PointId> Search::next() {
  LOCKSTEP_CHECK(batch_.empty(), "the last batch has no scores yet");
  const PointId left = std::min(trials_, grid_.size()) - scores_.size();
  if (left == 0) return {};
  if (exhaustive_) {
    for (PointId point = scores_.size(); batch_.size() < std::min<PointId>(left, kLargestBatch);)
      batch_.push_back(point++);
    return batch_;
  }
  while (true) {
    // A restart asks for one point only; its score is the base of the descent.
    if (!current_) {
      current_ = untried_point();
      begin_round();
      return batch_ = {*current_};
    }
    for (const PointId point : line())
      if (!scores_.contains(point) && batch_.size() < left) batch_.push_back(point);
    // The whole line is known already: move on without asking.
    if (!batch_.empty()) return batch_;
    finish_line();
  }
}

void Search::add_scores(const std::vector<Score>& scores) {
  LOCKSTEP_CHECK(scores.size() == batch_.size(), "a score for each point of the batch");
  const bool started = current_ && !scores_.contains(*current_);
  for (std::size_t i = 0; i < scores.size(); ++i) scores_[batch_[i]] = scores[i];
  batch_.clear();
  if (!exhaustive_ && !started) finish_line();
}

// Moves to the best point of the line. Only a strictly better point moves it, so it cannot go in
// cycles.
void Search::finish_line() {
  PointId best = *current_;
  for (const PointId point : line()) {
    const auto score = scores_.find(point);
    if (score != scores_.end() && score->second < scores_.at(best)) best = point;
  }
  round_gained_ = round_gained_ || best != *current_;
  current_ = best;
  round_.pop_back();
  if (!round_.empty()) return;
  if (round_gained_)
    begin_round();
  else
    current_ = std::nullopt;
}

}  // namespace lockstep::sim
