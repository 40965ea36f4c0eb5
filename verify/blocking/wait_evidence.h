// The wait points of a cause, in the order in which a finding shows them.
#pragma once

#include <cstddef>
#include <vector>

#include "verify/blocking/wait_graph.h"
#include "verify/context.h"

namespace lockstep::verify {

// The wait points at which a root is missing; for a cycle, those in which its ranks wait. If there
// are none, all points.
std::vector<std::size_t> points_of_roots(const Context& context, const WaitCause& wait);

// The earliest of them: by step, then by sequence number. Without steps, sequence numbers of
// different groups do not compare, so the point in which most ranks wait comes first.
const WaitPoint& first_point(const Context& context, const WaitCause& wait);

// Adds up to 8 calls in which ranks wait: the finding's own call first, then by distance to the
// roots.
void add_wait_evidence(const Context& context, const WaitCause& wait, Finding& finding);

}  // namespace lockstep::verify
