// A plan's calls on the network of its machines (Topology). GPUs are numbered tensor rank first,
// then context, data and pipeline stage, as Megatron does, and fill nodes in that order: GPU (t, c,
// d, s) is t + T (c + C (d + D s)).
//
//   within tasks      calls of tensor and context groups that leave their nodes, and messages that
//                     occupy the stages: all groups of the plan call at once. What that takes
//                     longer on links that are too narrow for them is a factor
//   overlapping them  the exchange of parameters and gradients, and messages that overlap: calls of
//                     the step's program, whose links the engine shares (sim/engine/shared_links.h)
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "sim/engine/step_program.h"
#include "sim/transformer/predict.h"

namespace lockstep::sim {

// Whether the network has room for this many GPUs; fine without a network.
Status check_network(std::int64_t ranks, const CostParameters& cost);

// How many times as long a call takes while all groups like this one call at once. `seconds`: what
// it takes alone. 1 without a network, of groups on one node, and where Group::all is 0. O(GPUs).
double crowding(const CostParameters& cost, const Call& call, const Group& group,
                const GroupLayout& layout, const Price& price, double seconds);

// Links between the nodes of such a group, on average (GroupLayout).
void add_hops(const CostParameters& cost, const Group& group, GroupLayout& layout);

struct GpuRange {
  std::int64_t first = 0, count = 0;
};
// Seconds for each byte of a message that the fullest link needs while all GPUs of one range send
// to those of another, GPU i to the one at the same share of them. 0 without a network. O(GPUs).
double fullest_link(const CostParameters& cost, std::int64_t gpus, const GpuRange& from,
                    const GpuRange& to);
// The same of large calls of all groups like this one among the GPUs of a range.
double fullest_link(const CostParameters& cost, std::int64_t gpus, const GpuRange& range,
                    trace::Op op, const Group& group);

// A stage of a step's program: its GPUs, of all replicas, and the calls of its exchanges, with the
// GPUs that make them. Replicas have equally many of its GPUs, one after the other.
struct StageOnNetwork {
  GpuRange gpus;
  struct Exchange {
    ExchangeCalls calls;
    GpuRange gpus;
  };
  std::vector<Exchange> exchanges;  // as in StageExchange
};

// The stage whose exchanges are all made by its own GPUs.
StageOnNetwork stage_on_network(const GpuRange& gpus,
                                const std::vector<PlannedExchange>& exchanges);

// The links of a step's program (StepProgram::links) on a network of `gpus`. `class_of`: by
// replica, which of the program's stands for it. O(GPUs · log).
StepLinks step_links(const CostParameters& cost, std::int64_t gpus, const StepProgram& program,
                     const std::vector<StageOnNetwork>& stages, double message_bytes,
                     const std::vector<std::int32_t>& class_of);

}  // namespace lockstep::sim
