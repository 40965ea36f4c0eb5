#include "verify/replay/stuck.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace lockstep::verify {

namespace {

class Fixpoint {
 public:
  Fixpoint(const std::vector<Position>& positions, const std::vector<WaitPoint>& points)
      : positions_(positions), points_(points) {}

  std::vector<bool> decide() const {
    const std::size_t n = positions_.size();
    // A rank that raised or was killed never moves; only running ones start the fixpoint.
    std::vector<bool> may_move(n);
    std::vector<std::uint32_t> work;
    for (std::uint32_t r = 0; r < n; ++r) {
      may_move[r] =
          positions_[r].state == Position::State::running && positions_[r].blocked == kNoCall;
      if (may_move[r]) work.push_back(r);
    }
    std::vector<std::vector<std::size_t>> waited_for_at(n);
    std::vector<std::size_t> open(points_.size());
    for (std::size_t p = 0; p < open.size(); ++p) {
      const WaitPoint& point = points_[p];
      open[p] = point.missing.size() + point.behind.size();
      for (const std::uint32_t r : point.missing) waited_for_at[r].push_back(p);
      for (const std::uint32_t r : point.behind) waited_for_at[r].push_back(p);
      // One sender suffices, and a member without trace may be the one. For a collective, a member
      // without trace is ignored: the ranks that are known to be missing are still missing.
      if (point.any_source) open[p] = point.unknown_member ? 0 : std::min<std::size_t>(open[p], 1);
      // All members issued it, or may have done so unseen: nothing keeps these ranks from going on.
      if (open[p] == 0 && !point.mismatched) release(p, may_move, work);
    }
    while (!work.empty()) {
      const std::uint32_t r = work.back();
      work.pop_back();
      for (const std::size_t p : waited_for_at[r]) {
        if (open[p] > 0 && --open[p] == 0 && !points_[p].mismatched) release(p, may_move, work);
      }
    }
    std::vector<bool> stuck(n);
    for (std::uint32_t r = 0; r < n; ++r) {
      stuck[r] = positions_[r].blocked != kNoCall && !may_move[r];
    }
    return stuck;
  }

 private:
  // Lets the ranks that wait at p move.
  void release(std::size_t p, std::vector<bool>& may_move, std::vector<std::uint32_t>& work) const {
    for (const std::uint32_t r : points_[p].waiting) {
      if (positions_[r].blocked == kNoCall || may_move[r]) continue;
      may_move[r] = true;
      work.push_back(r);
    }
  }

  const std::vector<Position>& positions_;
  const std::vector<WaitPoint>& points_;
};

}  // namespace

std::vector<bool> find_stuck(const std::vector<Position>& positions,
                             const std::vector<WaitPoint>& points) {
  return Fixpoint(positions, points).decide();
}

}  // namespace lockstep::verify
