// Gradients and parameters over one update: a parameter that moves without a gradient, a gradient
// that starts from the last step's.
#pragma once

#include <cstdint>
#include <vector>

#include "verify/numbers/value_table.h"

namespace lockstep::verify {

// Values of several names that show one fault first in step n.
struct UpdateFault {
  std::int64_t n = 0;
  std::vector<trace::StringId> names;  // in the program's order
  std::vector<std::uint32_t> ranks;    // rank indices that show it
  std::size_t steps = 0;               // in how many steps it shows
  bool absent = false;  // decayed: the gradient was not there at all, rather than zero
};

// Parameters that changed in a step in which their synchronised gradient was zero, or not there
// although others' gradients were recorded: weight decay and momentum act on them all the same.
// Where gradients were recorded before the synchronisation only, those of all ranks count.
// O(marks).
std::vector<UpdateFault> find_decayed(const trace::Run& run, const ValueTable& table);

// Gradients that backward found to be those of the step before, or a multiple of them
// (Phase::leftover): zero_grad was left out, and what backward adds goes on top. O(marks).
std::vector<UpdateFault> find_stale_gradients(const trace::Run& run, const ValueTable& table);

}  // namespace lockstep::verify
