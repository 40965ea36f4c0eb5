// Few ranks of a job that are alone in a collective of all, while the others wait elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "verify/causes.h"
#include "verify/context.h"

namespace lockstep::verify {

// Ranks of a cycle that wait in a call which no rank ever made before, and most of whose members go
// on with another round, as their pasts predict: a call that only one rank makes, or one that
// belongs after rounds that these ranks did not make. Pairs, as those of tensor parallelism, show
// no majority by themselves; the call's own group does.
//
//   rank 0   reduce(tp0) reduce(dp0) | reduce(tp0) reduce(dp0) | barrier(world)
//   rank 1   reduce(tp0) reduce(dp1) | reduce(tp0) reduce(dp1) | reduce(tp0)      waits for rank 0
//   rank 2   recv(0)     reduce(dp2) | recv(0)     reduce(dp2) | recv(0)          waits for rank 0
//
// Nothing where one of them left the common path before, or where the past of one is too short.
// O(members of the group) times the cost of is_usual().
std::optional<Cause> explain_begun_alone(const Context& context,
                                         const std::vector<std::size_t>& points);

// Whether a rank of a cycle of collectives came to one that it never made before, after whole
// rounds, while another rank goes on with its rounds: a loop may have ended early. Of a pair,
// nothing shows which of them is wrong. Not looked for in cycles of more than 64 points. O(points)
// times the cost of is_usual().
bool may_have_left_loop(const Context& context, const std::vector<std::size_t>& points);

// The ranks of a cycle that wait in its one collective, where all its other members wait in
// messages and are more than they: the last stage of a pipeline that made fewer micro-batches than
// the stages before it. Rank indices; none where there is no such call.
std::vector<std::uint32_t> alone_among_messages(const Context& context,
                                                const std::vector<std::size_t>& points);

}  // namespace lockstep::verify
