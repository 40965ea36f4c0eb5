// Wrong settings, which lockstep_watch records as numbers beside the tensors: ranks that draw the
// same random numbers, a model that trains in evaluation mode.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "verify/numbers/value_table.h"

namespace lockstep::verify {

struct EqualRandom {
  std::int64_t n = 0;                // the first step that shows it
  std::vector<std::uint32_t> ranks;  // rank indices whose generators are in one state then, sorted
};

// Compares the states of generators that the program declares to be different (kDifferentRandom).
// Nothing if all differ in every step, or if none were recorded. O(marks log ranks).
std::optional<EqualRandom> find_equal_random(const trace::Run& run, const ValueTable& table);

// The first step that a model made in evaluation mode, on all ranks, after steps in training mode,
// and from which on it stayed there: train() was not called after an evaluation. Nothing for models
// that were in evaluation mode from the beginning: programs may want that. O(marks).
std::optional<std::int64_t> find_evaluation_mode(const trace::Run& run, const ValueTable& table);

}  // namespace lockstep::verify
