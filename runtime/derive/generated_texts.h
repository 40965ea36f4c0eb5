// The texts that ranks generate after their steps, as far as a scenario says how long they are:
// part of the conditions of a derivation (derivation_plan.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "runtime/job/scenario.h"

namespace lockstep::runtime {

// After how many tokens texts end; nothing: none are generated.
using Tokens = std::optional<int>;

// The texts of some ranks after some steps; empty lists: all. In a list of these, the first that
// fits decides.
struct GeneratedTexts {
  std::vector<int> ranks;
  std::vector<std::int64_t> steps;
  Tokens tokens;
};

// The lengths are the scenario's, so it is known which rank meets which in which step. Synced ranks
// all run the model for the longest text of the step. The last entry is of all ranks and steps that
// the others leave. O(steps + steps that the scenario names · ranks).
std::vector<GeneratedTexts> generated_texts(const Scenario& scenario);

// The different lengths, ascending; "none" first.
std::set<Tokens> lengths_of(const std::vector<GeneratedTexts>& texts);

// What two lists name that mean everything where they are empty; nothing: no element is in both.
template <class Number>
std::optional<std::vector<Number>> in_both(std::vector<Number> a, std::vector<Number> b) {
  if (a.empty()) return b;
  if (b.empty()) return a;
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  std::vector<Number> out;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(out));
  if (out.empty()) return std::nullopt;
  return out;
}

}  // namespace lockstep::runtime
