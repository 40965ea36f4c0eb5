#include "sim/sweep/ranking.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace lockstep::sim {
namespace {

// Less is better.
double cost(const Row& row, Objective objective) {
  switch (objective) {
    case Objective::step_time:
      return row.step_seconds;
    case Objective::samples_per_second:
      return -row.samples_per_second;
    case Objective::samples_per_second_per_rank:
      return -row.samples_per_second_per_rank();
  }
  LOCKSTEP_CHECK(false, "no such objective");
}

}  // namespace

std::string_view to_string(Objective objective) {
  switch (objective) {
    case Objective::step_time:
      return "step_time";
    case Objective::samples_per_second:
      return "samples_per_second";
    case Objective::samples_per_second_per_rank:
      return "samples_per_second_per_rank";
  }
  LOCKSTEP_CHECK(false, "no such objective");
}

bool fits(const Row& row, const Goal& goal) {
  return !(row.device_bytes && row.memory_bytes > *row.device_bytes) &&
         !(goal.memory_limit && row.memory_bytes > *goal.memory_limit);
}

Score score(const Row& row, const Goal& goal) {
  if (row.outcome != Outcome::trains) return {2, 0};
  return fits(row, goal) ? Score{0, cost(row, goal.objective)} : Score{1, row.memory_bytes};
}

Ranking rank(const std::vector<Row>& rows, const Goal& goal) {
  Ranking out;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    switch (rows[i].outcome) {
      case Outcome::trains:
        (fits(rows[i], goal) ? out.fitting : out.too_large).push_back(i);
        break;
      case Outcome::hangs:
        out.hanging.push_back(i);
        break;
      case Outcome::wrong:
        out.wrong.push_back(i);
        break;
      case Outcome::refused:
        out.refused.push_back(i);
        break;
      case Outcome::failed:
        out.failed.push_back(i);
        break;
    }
  }
  const auto better = [&](std::size_t a, std::size_t b) {
    return score(rows[a], goal) < score(rows[b], goal);
  };
  std::stable_sort(out.fitting.begin(), out.fitting.end(), better);
  std::stable_sort(out.too_large.begin(), out.too_large.end(), better);
  std::vector<Costs> costs;
  for (const std::size_t i : out.fitting)
    costs.push_back(
        {cost(rows[i], goal.objective), rows[i].memory_bytes, static_cast<double>(rows[i].ranks)});
  out.on_front.assign(rows.size(), false);
  for (const std::size_t location : pareto_front(costs)) out.on_front[out.fitting[location]] = true;
  return out;
}

namespace {

bool dominates(const Costs& a, const Costs& b) {
  bool better = false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] > b[i]) return false;
    better = better || a[i] < b[i];
  }
  return better;
}

}  // namespace

// In lexicographic order a choice comes after all that dominate it, since those are less in the
// first dimension that differs. And a dominated choice is dominated by one of the front. So it is
// enough to compare each choice with the front so far.
std::vector<std::size_t> pareto_front(const std::vector<Costs>& all) {
  std::vector<std::size_t> order(all.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return all[a] < all[b]; });
  std::vector<std::size_t> front;
  for (const std::size_t one : order) {
    if (std::none_of(front.begin(), front.end(),
                     [&](std::size_t other) { return dominates(all[other], all[one]); }))
      front.push_back(one);
  }
  std::sort(front.begin(), front.end());
  return front;
}

}  // namespace lockstep::sim
