// Ranks the points of a sweep: by an objective, under a memory limit, and as a Pareto front.
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
  step_time,                    // less is better
  samples_per_second,           // more is better
  samples_per_second_per_rank,  // more is better
};
inline constexpr std::array<Objective, 3> kObjectives = {
    Objective::step_time, Objective::samples_per_second, Objective::samples_per_second_per_rank};

std::string_view to_string(Objective objective);  // as on the command line

struct Goal {
  Objective objective = Objective::samples_per_second;
  std::optional<double> memory_limit;  // bytes per rank, in addition to the machine's own limit
};

// For a row that trains: true if it needs no more memory than the machine has and the goal allows.
bool fits(const Row& row, const Goal& goal);

// For search and sorting. First rows that fit, by the objective; then rows that do not fit, by
// their memory; then rows that do not train.
Score score(const Row& row, const Goal& goal);

struct Ranking {
  std::vector<std::size_t> fitting;                          // into the rows; best first
  std::vector<std::size_t> too_large;                        // least memory first
  std::vector<std::size_t> hanging, wrong, refused, failed;  // as they came
  // By row: true if no other row that fits is at least as good in objective, memory per rank and
  // number of ranks, and better in one of them.
  std::vector<bool> on_front;
};

// O(n log n + n · front).
Ranking rank(const std::vector<Row>& rows, const Goal& goal);

// The Pareto front: what nothing else beats in every dimension.

// The costs of a choice, by dimension; less is better. No NaN.
using Costs = std::vector<double>;

// Indices, ascending, of the choices that no other dominates; one dominates if it is no worse in
// every dimension and better in one. Equal choices are all on the front. All choices have the same
// number of dimensions. O(n log n + n · front).
std::vector<std::size_t> pareto_front(const std::vector<Costs>& all);

}  // namespace lockstep::sim
