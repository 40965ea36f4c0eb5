// Which algorithm carries an operation where nobody names one.
#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"
#include "sim/collectives/collective.h"

namespace lockstep::sim {

// What Gloo takes, by its code, whatever the size: all_reduce, all_gather and reduce_scatter a ring
// (allreduce.cc: ring unless told otherwise), broadcast a binomial tree (broadcast.cc), all_to_all,
// gather and scatter a message for each pair, barrier dissemination (barrier.cc). And reduce a
// binomial tree, where Gloo's goes around a ring and gathers at the root. Nothing: not simulated.
std::optional<Algorithm> default_algorithm(Op op);

// How long a call takes over `ranks` ranks by default_algorithm(), by the closed form. One rank
// alone takes no time. Errors: an operation that is not simulated, and closed_form()'s.
Result<Picos> default_time(Op op, std::int64_t ranks, Bytes bytes, const LinkCost& link);

}  // namespace lockstep::sim
