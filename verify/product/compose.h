// A run made of recorded parts: what all ranks do when each step finds each rank in the condition
// that an assignment says. verify() judges it like any other program.
#pragma once

#include <cstdint>
#include <vector>

#include "trace/run.h"
#include "verify/product/model.h"

namespace lockstep {

struct Assignment {
  std::vector<std::int64_t> steps;  // those that are made, ascending, step 0 first
  // For each of these, by rank: the condition, and the history that the rank follows.
  std::vector<std::vector<ProductOption>> options;
};

// The start, the steps, and the end. The run has no times and no completions: it is a program, to
// be judged by the semantics alone. A rank ends with an exception in the step in which its trace
// does, if it does that step's predecessors as recorded, and where nothing else was recorded.
// O(events of the parts + traces of the histories used).
Run compose(const ProductModel& model, const Assignment& assignment);

// The calls of a run as such a program: whose collectives completed because nobody else was there.
Run as_program(const Run& run);

}  // namespace lockstep
