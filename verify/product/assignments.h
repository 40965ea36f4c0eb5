// Assignments for counterexamples: as few ranks as possible in another condition than the others.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "verify/product/compose.h"
#include "verify/product/model.h"

namespace lockstep {

// For each rank the option that most ranks may have, of those that were recorded. Empty where some
// rank has none.
std::vector<ProductOption> usual_options(const ProductModel& model, const Situation& situation);

// The steps up to the situation's, and one more where that can be: step 0 and those between as
// usual, the situation's with `options`, by rank. Of many steps only the first and the last ones:
// what lies between them agrees, whatever the choice.
Assignment lead_to(const ProductModel& model, const Situation& situation,
                   const std::vector<ProductOption>& options);

// The first steps as most ranks may meet them: an example of what the program does. Nothing where
// that was not recorded.
std::optional<Assignment> usual_steps(const ProductModel& model);

// All ranks as usual, but for one, which does what its trace of `history` did up to the step in
// which it raised an exception, and the others with it where they must agree. Nothing where
// `allowed` forbids that.
std::optional<Assignment> follow_trace(const ProductModel& model, std::uint32_t history,
                                       std::int32_t rank);

}  // namespace lockstep
