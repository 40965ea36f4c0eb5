#include "verify/blocking/wait_evidence.h"

#include <algorithm>
#include <cstdint>
#include <tuple>

#include "verify/blocking/stopped.h"
#include "verify/blocking/witnesses.h"
#include "verify/matching/matching.h"

namespace lockstep::verify {

std::vector<std::size_t> points_of_roots(const Context& context, const WaitCause& wait) {
  std::vector<std::size_t> out;
  for (const std::size_t p : wait.points) {
    const WaitPoint& point = context.where.wait_points[p];
    const auto& ranks = wait.cycle ? point.waiting : point.missing;
    const bool concerned = std::any_of(ranks.begin(), ranks.end(), [&](std::uint32_t r) {
      return std::binary_search(wait.roots.begin(), wait.roots.end(), r);
    });
    if (concerned) out.push_back(p);
  }
  return out.empty() ? wait.points : out;
}

const WaitPoint& first_point(const Context& context, const WaitCause& wait) {
  // By step; where none is known, the call in which most ranks wait; then by number.
  const auto key = [&](std::size_t p) {
    const WaitPoint& point = context.where.wait_points[p];
    const std::int32_t step = context.call(waiting_call(context, point.waiting[0])).step;
    const std::size_t few = step == trace::kNone ? SIZE_MAX - point.waiting.size() : 0;
    return std::make_tuple(step == trace::kNone ? INT32_MAX : step, few, seq_at(context, point), p);
  };
  const std::vector<std::size_t> points = points_of_roots(context, wait);
  return context.where.wait_points[*std::min_element(
      points.begin(), points.end(), [&](std::size_t a, std::size_t b) { return key(a) < key(b); })];
}

void add_wait_evidence(const Context& context, const WaitCause& wait, Finding& finding) {
  std::vector<std::size_t> points = wait.points;
  // The finding's own call before others of the same distance.
  std::stable_partition(points.begin(), points.end(), [&](std::size_t p) {
    const WaitPoint& point = context.where.wait_points[p];
    return context.ranks(point.waiting) == finding.waiting;
  });
  for (const std::size_t p : by_distance(context, wait.roots, points)) {
    const WaitPoint& point = context.where.wait_points[p];
    finding.evidence.push_back(wait_evidence(context, point, describe_awaited(context, point)));
    if (finding.evidence.size() >= 8) return;  // enough for a reader
  }
}

}  // namespace lockstep::verify
