// Calls that do not fit together: what explain_deviation.cc, splits.cc, step_offsets.cc,
// point_to_point.cc and mpi_forms.cc find, one finding per cause.
#pragma once

#include <vector>

#include "verify/context.h"

namespace lockstep::verify {

// A deviation in words, in the user's terms: modality-divergence where the batches differ in the
// same way.
Cause explain_deviation(const Context& context, const Deviation& deviation);

// Splits of all-to-alls that do not fit together, which no comparison of two ranks shows.
// O(members²) per all-to-all that records splits, once per distinct one in a row.
std::vector<Cause> check_splits(const Context& context);

// All-to-alls whose splits were not recorded: what all members give must be what all take.
//
// One cause per group, for the first all-to-all whose totals differ. Who is wrong cannot be told
// from totals: no culprits. Only where every member's trace is there. O(calls).
std::vector<Cause> check_exchange_totals(const Context& context);

// Ranks that meet in calls of different training steps: a rank left out a whole step, so that its
// gradients of step 3 are added to the others' of step 2, and nothing hangs as long as the numbers
// of calls come out equal.
//
// Groups whose members' calls agree in everything but the step, for a whole step or more: to the
// end, or until a later difference brings them together again. A label that is late by a call is no
// fault. Steps are labels that a program gives itself; they compare where all members began with
// the same one. Where the numbers of calls differ, find_deviations says more. O(calls of the
// different classes).
std::vector<Cause> check_step_offsets(const Context& context);

// Receives that wait while a message for them lies there with another tag, or in another group.
//
// Why the two do not meet is the cause, whatever else the ranks wait for by then.
//
// One finding per waiting rank. O(messages left + waiting ranks, log).
std::vector<Cause> check_near_misses(const Context& context);

// What only MPI tells apart: collectives that agree in operation, size and type and still do not
// match, because one rank called the blocking and another the nonblocking form, or one the form
// with counts per rank and another the one without (MPI 4.0, 6.12 and 6.2).
//
// For groups whose calls agree otherwise; one finding per group. O(calls).
std::vector<Cause> check_forms(const Context& context, const std::vector<bool>& deviates);

}  // namespace lockstep::verify
