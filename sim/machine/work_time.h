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
#include "sim/collectives/price.h"
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

// Rank r is on node r / ranks_per_node. O(members · log).
GroupLayout layout_of(const std::vector<std::int32_t>& members, std::int64_t ranks_per_node);

// The layouts of all groups of a job; on a machine with the hops between their nodes, where those
// add latency (0 if the network is too small for the job).
std::vector<GroupLayout> layouts_of(const ProgramJob& job, std::int64_t ranks_per_node);
std::vector<GroupLayout> layouts_of(const ProgramJob& job, const Machine& machine);
// For each group a number, equal for groups of equal layouts: fold() must keep the others apart.
std::vector<std::uint32_t> kinds_of(const std::vector<GroupLayout>& layouts);

// The time of a call from its last member's arrival: price() of sim/collectives/price.h. Where
// ranks share cores it is how long each member works for the call, as c10d's Gloo carries it out (a
// reduce-scatter as an all-reduce). Errors: price()'s.
Result<Picos> call_time(const ProgramCall& call, const GroupLayout& layout, const Machine& machine);

// call_time(), and, where ranks share cores, how many hops its algorithm makes one after the other
// (how often its latency counts). Errors: call_time()'s.
Result<CallCost> call_cost(const ProgramCall& call, const GroupLayout& layout,
                           const Machine& machine);

// The time of one call, and, if NCCL carries it, the pairs that NCCL chose from.
struct PricedCall {
  Bytes bytes;  // 0: it has no buffer
  Picos time;
  PriceSource source = PriceSource::formula;
  std::optional<NcclCost> chosen;
  std::vector<NcclCost> pairs;
  // Where a link of the network is too narrow for it: how many times as long it takes, which is in
  // `time`, and the link's name.
  double slowed = 1;
  std::string narrowest;
};

// Calls of one operation in one group.
struct PricedCalls {
  Machine machine;
  trace::Op op = trace::Op::all_reduce;
  GroupLayout layout;
  std::vector<PricedCall> calls;  // one for each size
};

// Prices a call of each size among ranks 0 … ranks - 1, at least two, on as few nodes as hold them,
// alone on the machine's network. Errors: price()'s; a network that is too small.
Result<PricedCalls> price_calls(trace::Op op, std::int64_t ranks, const std::vector<Bytes>& sizes,
                                const Machine& machine);

}  // namespace lockstep::sim
