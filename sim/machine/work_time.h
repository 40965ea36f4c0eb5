// How long work and calls take on a machine.
//
// A stretch of work (trace/work_costs.h) takes
//
//   products   max(flops / (peak · efficiency), their bytes / (bandwidth · efficiency))
//   the rest   bytes / (bandwidth · efficiency)
//
// and the host a launch for each kernel and a dispatch for each operation: on top of that, or,
// where the device works meanwhile, at least that long. It is the roofline model (Williams,
// Waterman and Patterson, Commun. ACM 52(4), 2009) over a whole stretch, which is at most what it
// is kernel by kernel.
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

// The type that is priced where a machine does not know the one that was asked for: the next wider
// one that it has, else the widest.
const Machine::Compute& compute_for(const Machine& machine, const std::string& dtype);

// Of a rank that shares no core, times the stretch's correction. In seconds.
double work_seconds(const trace::WorkCost& work, const Machine& machine);

// Corrects each stretch that was timed (nanos) on this machine, so that it takes what it took;
// priced for a machine that is changed (sim/forecast/what_if.h), it stays as far from its rates.
// Stretches that are not timed, or without anything to price, stay as they are. O(stretches).
void correct_by_times(trace::RankCosts& costs, const Machine& machine);

// Where the members of a group are, as far as its calls' costs go.
struct GroupPlace {
  std::int64_t ranks = 1;
  std::int64_t nodes = 1;
  // Ranks on each of its nodes; 0: not the same number on all.
  std::int64_t per_node = 1;

  friend auto operator<=>(const GroupPlace&, const GroupPlace&) = default;
};
// Rank r is on node r / ranks_per_node. O(members · log).
GroupPlace place_of(const std::vector<std::int32_t>& members, std::int64_t ranks_per_node);

// How NCCL carries the call, and what that takes (sim/collectives/nccl_tuning.h). Nothing where it
// is not NCCL that does, or its model has no answer: operations that it does not tune, one rank
// alone, nodes with different numbers of ranks, several nodes on a machine with one level of links.
std::optional<NcclCost> nccl_call(const ProgramCall& call, const GroupPlace& place,
                                  const Machine& machine);

// The places of all groups of a job.
std::vector<GroupPlace> places_of(const ProgramJob& job, std::int64_t ranks_per_node);
// Equal numbers for groups that are placed alike: what fold() must tell apart.
std::vector<std::uint32_t> kinds_of(const std::vector<GroupPlace>& places);

// Whether a call is priced as rings over several nodes, below.
bool goes_in_rings(trace::Op op, const GroupPlace& place);

// What a call takes from its last member's arrival, by nccl_call() where that answers; where ranks
// share cores, what each member works for it, as c10d's Gloo carries it out: a reduce-scatter as an
// all-reduce. Inside a node, and for what follows no ring: as sim/collectives/closed_form.h says,
// with the links between nodes where the group leaves one. All-reduce, all-gather and
// reduce-scatter of n ranks on N nodes with k each:
//
//   r(k-1)·a' + r⌈log2 N⌉·a + r(n-1)/n·B/min(beta', k·beta) + reducing,  r = 2 for all-reduce, else
//   1
//
// primes for the links inside a node: rings that leave a node by the links of all its ranks, as
// NCCL's channels do, with the latency of a tree, which NCCL takes where latency counts.
// tests/sim/machine holds it against measured tables. Errors: an operation that is not simulated, a
// time that does not fit.
Result<Picos> call_time(const ProgramCall& call, const GroupPlace& place, const Machine& machine);

// The same, with the hops that its algorithm makes one after the other (how often its latency
// counts) where ranks share cores. Errors: call_time's.
Result<CallCost> call_cost(const ProgramCall& call, const GroupPlace& place,
                           const Machine& machine);

// What one call takes, and the pairs that NCCL had to choose from, if it is NCCL's.
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
  GroupPlace place;
  std::vector<PricedCall> calls;  // a size each
};

// A call for each of `sizes`, one after the other, among ranks on as few nodes as hold them. At
// least two ranks. Errors: call_time's.
Result<PricedCalls> price_calls(trace::Op op, std::int64_t ranks, const std::vector<Bytes>& sizes,
                                const Machine& machine);

}  // namespace lockstep::sim
