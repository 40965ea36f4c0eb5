// PyTorch's execution traces as JSON: what ExecutionTraceObserver writes, one file per rank, schema
// 1.0.1 to 1.1.1 (PyTorch 1.13 to 2.9).
//
//   {"schema": "1.0.1", "pid": 59811, …, "nodes": [
//     {"name": "record_param_comms", "id": 727, "parent": 726, …,
//      "inputs": [[718, …], 147, 94594108284448, 0, "all_to_allv", [768, …], [768, …]], …}, …]}
//
// From 1.0.2-chakra.0.0.4 on, values stand below "inputs" → "values", parents are "ctrl_deps", and
// 1.1.0 adds attributes: collective_name, dtype, in_msg_nelems, pg_name, ….
//
// What is taken: each `record_param_comms` node, in the order of the nodes' ids, which is that in
// which the calls were made. Its values are, around the operation's name: number in the group,
// group (a pointer, later a pair of name and description), rank (of rooted operations the root's),
// splits, and then first rank, stride and size of the group, or the size alone.
//
// Sources: pytorch torch/csrc/profiler/standalone/execution_trace_observer.cpp,
// torch/csrc/distributed/c10d/ParamCommsUtils.hpp and ProcessGroupNCCL.cpp. Before 1.0.3 a group is
// known by a pointer alone, which tells nothing to other ranks: where a rank has one group, that is
// taken as the group of all ranks.
//
// Like a profile, an execution trace is a window of the run. Cost: nodes are found by a scan
// without parsing; only those of communication are parsed.
#pragma once

#include <cstddef>

#include "trace/formats/format.h"

namespace lockstep::trace {

inline constexpr std::size_t kExecutionTraceMemoryFactor = 12;

Format execution_trace_format();

}  // namespace lockstep::trace
