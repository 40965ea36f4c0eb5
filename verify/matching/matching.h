// Calls that do not match: the findings of explain_deviation.cc, explain_odd_program.cc, splits.cc,
// step_offsets.cc, point_to_point.cc, mpi_forms.cc and thread_order.cc, one per cause.
#pragma once

#include <optional>
#include <vector>

#include "verify/context.h"

namespace lockstep::verify {

// Explains a deviation in the user's terms; as modality-divergence where the batches differ in the
// same way as the calls.
Cause explain_deviation(const Context& context, const Deviation& deviation);

// Finds a group in which several threads of each rank issue calls, in another order on each rank,
// although thread by thread the ranks agree. No rank is at fault. Nothing where threads were not
// recorded, or wait for one another instead of working at the same time. O(calls of the group, and
// events of the ranks that differ).
std::optional<Cause> check_thread_order(const Context& context, std::size_t group);

// Explains what the ranks did whose program diverges from those of their kind: a message or a
// collective that they left out, issued too often, or issued with another peer. Nothing where it is
// not known to which call of theirs it corresponds. O(calls).
std::optional<Cause> explain_odd_program(const Context& context, const OddProgram& odd);

// Whether the ranks left out a message that their peers did post: with the messages that follow,
// the peers posted more of the other side than they had up to there. Where both sides of a message
// lack it, nobody misses it. O(calls of these ranks and their peers).
bool is_missed_by_peers(const Context& context, const OddProgram& odd);

// Whether `deviants` and `others`, members of one group, differ because all the others are ranks of
// the job's odd program: these left out, or added, calls before call `index` of a deviant, which
// paired with calls of the same form. Then the group's numbers mislead.
bool is_odd_program_of_others(const Context& context, const std::vector<std::uint32_t>& deviants,
                              const std::vector<std::uint32_t>& others, std::uint32_t index);

// Whether the ranks of the deviation are those of the job's odd program, and left out, or added,
// calls before it already: what came next paired with calls of the same form, and only lines of the
// program, or names, tell them apart.
bool is_beginning_of(const Context& context, const Deviation& deviation);

// Finds all-to-alls whose splits contradict each other: rank 0 sends 4 elements to rank 1, which
// expects 5. Comparing the calls of two ranks field by field cannot show this.
// O(members²) per all-to-all with splits; consecutive equal ones are checked once.
std::vector<Cause> check_splits(const Context& context);

// Finds all-to-alls without recorded splits whose totals differ: all members together must send as
// much as they receive.
//
// One cause per group, for the first such all-to-all. Totals do not show who is wrong, so there are
// no culprits. Only for groups with a trace of every member. O(calls).
std::vector<Cause> check_exchange_totals(const Context& context);

// Finds ranks whose matching calls belong to different training steps. A rank left out a whole
// step, so its gradients of step 3 are added to the others' of step 2. Nothing hangs as long as the
// numbers of calls are equal.
//
// Reports groups whose members' calls agree in everything but the step, for a whole step or more:
// to the end, or until a later difference aligns them again. A label that is late by a call is no
// fault. Steps are labels that each program chooses; they are comparable where all members began
// with the same one. Where the numbers of calls differ, find_deviations says more. O(calls of the
// different classes).
std::vector<Cause> check_step_offsets(const Context& context);

// Finds matching point-to-point calls with different sizes or types, and calls without a partner
// although both ranks finished. O(unmatched calls · log ranks).
std::vector<Cause> check_point_to_point(const Context& context);

// Finds receives that wait although a message for them was sent with another tag or in another
// group. That mismatch is the cause, whatever else the ranks wait for by then. One finding per
// waiting rank, at most 16. `among`: of messages between these ranks (rank indices, ascending;
// null: all). O((their messages left + ranks) · log(messages left)).
std::vector<Cause> check_near_misses(const Context& context,
                                     const std::vector<std::uint32_t>* among = nullptr);

// Finds collectives that agree in operation, size and type but do not match in MPI: one rank called
// the blocking and another the nonblocking form, or one the form with counts per rank and another
// the one without (MPI 4.0, 6.12 and 6.2).
//
// Only for groups whose calls agree otherwise (`deviates`, by group, is false). One finding per
// group. O(calls).
std::vector<Cause> check_forms(const Context& context, const std::vector<bool>& deviates);

}  // namespace lockstep::verify
