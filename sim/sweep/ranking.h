// Which of a sweep's points are good: by an objective, under a limit of memory, and as a front.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "sim/sweep/row.h"
#include "sim/sweep/search.h"

namespace lockstep::sim {

enum class Objective : std::uint8_t {
  step_time,                    // the shorter the better
  samples_per_second,           // the more
  samples_per_second_per_rank,  // the more
};
inline constexpr std::array<Objective, 3> kObjectives = {
    Objective::step_time, Objective::samples_per_second, Objective::samples_per_second_per_rank};

std::string_view to_string(Objective objective);  // as on the command line

struct Goal {
  Objective objective = Objective::samples_per_second;
  std::optional<double> memory_limit;  // of a rank, in bytes; the machine's own holds as well
};

// Of a row that trains: whether it needs no more memory than there is and may be taken.
bool fits(const Row& row, const Goal& goal);

// For the search, and for sorting: what fits by its objective; then what does not, by its memory;
// then what does not train.
Score score(const Row& row, const Goal& goal);

struct Ranking {
  std::vector<std::size_t> fitting;                   // into the rows; best first
  std::vector<std::size_t> too_large;                 // least memory first
  std::vector<std::size_t> hanging, refused, failed;  // as they came
  // By row: no other that fits is as good by the objective, with as little memory a rank and as few
  // ranks, and better in one of them.
  std::vector<bool> on_front;
};

// O(n log n + n · front).
Ranking rank(const std::vector<Row>& rows, const Goal& goal);

// The Pareto front: what nothing else beats in every respect.

// What one choice costs in each respect; less is better. No NaN.
using Costs = std::vector<double>;

// The places of those that no other dominates: is no worse in every respect and better in one.
// Equals are all in it. All have as many respects. Ascending. O(n log n + n · front).
std::vector<std::size_t> pareto_front(const std::vector<Costs>& all);

}  // namespace lockstep::sim
