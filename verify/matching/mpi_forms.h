// What only MPI tells apart: collectives that agree in operation, size and type and still do not
// match, because one rank called the blocking and another the nonblocking form, or one the form
// with counts per rank and another the one without (MPI 4.0, 6.12 and 6.2).
#pragma once

#include <vector>

#include "verify/context.h"

namespace lockstep::verify {

// For groups whose calls agree otherwise; one finding per group. O(calls).
std::vector<Cause> check_forms(const Context& context, const std::vector<bool>& deviates);

}  // namespace lockstep::verify
