// How long work and calls take on a machine.
//
// A segment of work (trace/work_costs.h) takes
//
//   products   max(flops / (peak · efficiency), their bytes / (bandwidth · efficiency))
//   the rest   bytes / (bandwidth · efficiency)
//
// and the host takes a launch for each kernel and a dispatch for each operation. The host's time is
// added, or, where the device works meanwhile, the segment takes the longer of the two. This is the
// roofline model (Williams, Waterman and Patterson, Commun. ACM 52(4), 2009) over a whole segment,
// which gives at most the time that it gives kernel by kernel.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "sim/collectives/nccl_tuning.h"
#include "sim/engine/executor.h"
#include "sim/engine/program.h"
#include "sim/machine/machine.h"
#include "trace/work_costs.h"

namespace lockstep::sim {

// The rates for an element type. If the machine does not list `dtype`: those of the next wider type
// that it lists, else of the widest.
const Machine::Compute& compute_for(const Machine& machine, const std::string& dtype);

// Seconds of a segment for a rank that shares no core, times the segment's correction.
double work_seconds(const trace::WorkCost& work, const Machine& machine);

// Sets the correction of each segment that was timed (nanos) on this machine, so that the model
// gives the measured time. Priced for a changed machine (sim/forecast/what_if.h), the segment keeps
// its ratio to the modelled rates. Segments that were not timed, or that the model prices at 0,
// stay as they are. O(segments).
void correct_by_times(trace::RankCosts& costs, const Machine& machine);

// Where the members of a group are, as far as the cost of its calls depends on it.
struct GroupLayout {
  std::int64_t ranks = 1;
  std::int64_t nodes = 1;
  // Ranks on each of its nodes; 0 if the nodes have different numbers.
  std::int64_t per_node = 1;

  friend auto operator<=>(const GroupLayout&, const GroupLayout&) = default;
};
// Rank r is on node r / ranks_per_node. O(members · log).
GroupLayout layout_of(const std::vector<std::int32_t>& members, std::int64_t ranks_per_node);

// How NCCL carries the call, and its cost (sim/collectives/nccl_tuning.h). Empty where the machine
// has no NCCL or NCCL's model does not apply: operations that it does not tune, one rank alone,
// nodes with different numbers of ranks, several nodes on a machine with one level of links.
std::optional<NcclCost> nccl_call(const ProgramCall& call, const GroupLayout& layout,
                                  const Machine& machine);

// The places of all groups of a job.
std::vector<GroupLayout> layouts_of(const ProgramJob& job, std::int64_t ranks_per_node);
// For each group a number, equal for groups that are placed alike: fold() must tell the others
// apart.
std::vector<std::uint32_t> kinds_of(const std::vector<GroupLayout>& layouts);

// True if a call is priced as rings over several nodes, see call_time().
bool goes_in_rings(trace::Op op, const GroupLayout& layout);

// The time of a call from its last member's arrival: nccl_call()'s where that applies. Where ranks
// share cores it is how long each member works for the call, as c10d's Gloo carries it out (a
// reduce-scatter as an all-reduce). All-reduce, all-gather and reduce-scatter of n ranks on N nodes
// with k each go in rings over the nodes:
//
//   r(k-1)·a' + r⌈log2 N⌉·a + r(n-1)/n·B/min(beta', k·beta) + reducing
//
// with r = 2 for all-reduce, else 1; primes mark the links inside a node. These rings leave a node
// over the links of all its ranks, as NCCL's channels do, but with the latency of a tree, which
// NCCL uses where latency matters; tests/sim/machine compares this with measured tables. All other
// calls cost what sim/collectives/closed_form.h says, with the links between nodes if the group
// leaves its node.
//
// Errors: an operation that is not modelled, a time beyond the range of the clock.
Result<Picos> call_time(const ProgramCall& call, const GroupLayout& layout, const Machine& machine);

// call_time(), and, where ranks share cores, how many hops its algorithm makes one after the other
// (how often its latency counts). Errors: call_time()'s.
Result<CallCost> call_cost(const ProgramCall& call, const GroupLayout& layout,
                           const Machine& machine);

// The time of one call, and, if NCCL carries it, the pairs that NCCL chose from.
struct PricedCall {
  Bytes bytes;  // 0: it has no buffer
  Picos time;
  std::optional<NcclCost> chosen;
  std::vector<NcclCost> pairs;
};

// Calls of one operation in one group.
struct PricedCalls {
  Machine machine;
  trace::Op op = trace::Op::all_reduce;
  GroupLayout layout;
  std::vector<PricedCall> calls;  // one for each size
};

// Prices a call of each size among ranks 0 … ranks - 1, at least two, on as few nodes as hold them.
// Errors: call_time()'s.
Result<PricedCalls> price_calls(trace::Op op, std::int64_t ranks, const std::vector<Bytes>& sizes,
                                const Machine& machine);

}  // namespace lockstep::sim
