// Faults of single updates: parameters that change without a gradient or do not change with one,
// gradients that were not zeroed, parts of parameters that the optimizer skipped, values that are
// not finite.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "verify/numbers/value_table.h"

namespace lockstep::verify {

// One fault, which these values show first in step n.
struct UpdateFault {
  std::int64_t n = 0;
  std::vector<trace::StringId> names;  // in the program's order
  std::vector<std::uint32_t> ranks;    // rank indices that show it
  std::size_t steps = 0;               // in how many steps it shows
  bool absent = false;  // decayed: the gradient was not there at all, rather than zero
};

// Finds parameters that changed in a step in which their synchronised gradient was zero, or did not
// exist although other gradients were recorded: weight decay and momentum still changed them. Where
// only local gradients were recorded, those of all ranks must be zero or missing. O(marks).
std::vector<UpdateFault> find_decayed(const trace::Run& run, const ValueTable& table);

// Finds gradients that at the start of backward were still those of the previous step, or a
// multiple of them (Phase::leftover): zero_grad() was left out, and backward adds to them. Or the
// recorder says so (kLeftover). O(marks).
std::vector<UpdateFault> find_stale_gradients(const trace::Run& run, const ValueTable& table);

struct Unreduced {
  std::int64_t n = 0;
  std::size_t steps = 0;             // in how many steps it shows
  std::size_t backwards = 0;         // that were lost in step n; 0: the step had no gradient at all
  std::vector<std::uint32_t> ranks;  // rank indices that show it
};

// Finds steps in which gradients that were added up on the rank never came to be reduced, as
// lockstep_watch counts them ("lost", "unreduced"). O(marks).
std::optional<Unreduced> find_unreduced(const trace::Run& run, const ValueTable& table);

// Finds parts of sharded parameters that an optimizer left out: they did not change in a step,
// although they had a gradient and the other ranks' parts of the same parameter changed. An update
// may also be too small to change a rounded value. So this counts only where the others' change is
// far above rounding, and this rank's gradient is not much smaller than theirs. O(marks).
std::vector<UpdateFault> find_still(const trace::Run& run, const ValueTable& table);

struct Unchanged {
  UpdateFault fault;  // the parameters, and the first step in which they should have changed
  bool all = false;   // no parameter changed in any step
};

// Finds parameters that no update ever changed on any rank, although they had gradients in three
// steps or more and the learning rate was not 0: the optimizer does not hold them. Steps that a
// GradScaler left out do not count, nor those whose update may be lost in rounding. O(marks).
std::optional<Unchanged> find_unchanged(const trace::Run& run, const ValueTable& table);

// Parameters that became NaN or infinite.
struct NonFinite {
  std::int64_t n = 0;                  // the step after which they are
  std::vector<trace::StringId> names;  // … those of that step, in the program's order
  // What was not finite first, and where: a gradient of a rank's own, one that the optimizer got,
  // or only the parameter.
  Phase first = Phase::param;
  std::int64_t first_n = 0;
  std::vector<std::uint32_t> first_ranks;  // rank indices
};

// A value that is not finite has a hash but no norm, where that parameter has one in other steps,
// or other gradients of the rank have one. Gradients alone are not a fault: a GradScaler skips the
// steps of those that overflow. O(marks).
std::optional<NonFinite> find_non_finite(const ValueTable& table);

}  // namespace lockstep::verify
