// A run made of recorded parts: what all ranks do when each step finds each rank in the condition
// that an assignment says. verify() judges it like any other program.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trace/run.h"
#include "verify/product/model.h"

namespace lockstep::verify {

struct Assignment {
  std::vector<std::int64_t> steps;  // those that are made, ascending, step 0 first
  // For each of these, by rank: the condition, and the history that the rank follows.
  std::vector<std::vector<ProductOption>> options;
};

// The start, the steps, and the end. The run has no times and no completions: it is a program, to
// be judged by the semantics alone. A rank ends with an exception in the step in which its trace
// does, if it does that step's predecessors as recorded, and where nothing else was recorded.
// O(events of the parts + traces of the histories used).
trace::Run compose(const ProductModel& model, const Assignment& assignment);

// The calls of a run as such a program: whose collectives completed because nobody else was there.
trace::Run as_program(const trace::Run& run);

// Assignments for counterexamples: as few ranks as possible in another condition than the others.

// For each rank the option that most ranks may have, of those that were recorded. Empty where some
// rank has none.
std::vector<ProductOption> usual_options(const ProductModel& model, const Situation& situation);

// The steps up to the situation's, and one more where that can be: step 0 and those between as
// usual, the situation's with `options`, by rank. If there are many steps, only the first and
// the last ones: what is between them agrees, whatever the choice.
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

}  // namespace lockstep::verify
