// Composes runs from the recorded parts of a derivation: an assignment says in which condition each
// rank is in each step, and compose() gives the calls that the ranks then make. verify() judges
// such a run like any other program.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trace/run.h"
#include "verify/product/model.h"

namespace lockstep::verify {

struct Assignment {
  std::vector<std::int64_t> steps;  // ascending, step 0 first
  // For each of these, by rank: its condition, and the history that it follows.
  std::vector<std::vector<ProductOption>> options;
};

// The start, the steps, and the end. The run has no times and no completions: it is a program, to
// be judged by the semantics alone. A rank raises an exception where its trace does, if its steps
// up to there are those of the trace; and it ends early where nothing was recorded for its option.
// O(events of the parts + traces of the histories used).
trace::Run compose(const ProductModel& model, const Assignment& assignment);

// The calls of a recorded run as such a program, without what was measured. For runs of one rank at
// a time, in which collectives completed because nobody else was there.
trace::Run as_program(const trace::Run& run);

// Assignments for counterexamples. They keep as many ranks as possible in the usual condition, so
// that the reader sees what matters.

// For each rank the option that most ranks may have, among those that were recorded. Empty if some
// rank has none.
std::vector<ProductOption> usual_options(const ProductModel& model, const Situation& situation);

// The steps up to the situation's with `options` (by rank) in the last one, and one more step if
// that is possible. Step 0 and the steps between are as usual. A situation far into the job is
// reached without the steps between: they agree, whatever the ranks choose.
Assignment steps_up_to(const ProductModel& model, const Situation& situation,
                       const std::vector<ProductOption>& options);

// The first steps with the usual options: an example of what the program does. Nothing where these
// were not recorded.
std::optional<Assignment> usual_steps(const ProductModel& model);

// The steps in which `rank` does what its trace of `history` did, up to the step in which it raised
// an exception. The other ranks are in the same conditions where they may be. Nothing if `allowed`
// forbids this, or the exception came too late to follow.
std::optional<Assignment> follow_trace(const ProductModel& model, HistoryId history,
                                       std::int32_t rank);

}  // namespace lockstep::verify
