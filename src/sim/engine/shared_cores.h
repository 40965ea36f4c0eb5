// Runs a job's programs where ranks have to share processor cores, and communicate by processors:
// Gloo over the loopback of a machine.
//
// What a rank works, and its part of a call, are work of the cores of its node, which all that want
// to go on share alike: with k of them on c cores each gets min(1, c / k) of one (processor
// sharing; Kleinrock, J. ACM 14(2), 1967), since an operating system gives time in slices that are
// short beside what is worked. Cores that are busy at the same time share caches and memory and
// slow each other down, by `contention` when all are busy, and in proportion when fewer. So when
// something ends depends on what else goes on, and events are taken in the order of time, ties by
// rank and step; where there are cores enough the times are those of execute().
//
// O(operations · log(ranks)).
#pragma once

#include <cstdint>
#include <vector>

#include "sim/engine/executor.h"
#include "sim/engine/program.h"

namespace lockstep::sim {

struct SharedCores {
  std::int64_t cores = 1;              // of each node
  double contention = 1;               // from 1
  std::vector<std::uint32_t> node_of;  // of each rank of the job: 0, 1, …
};

// `work`: what each member of the group works for a call, alone on a core, once all have come; the
// call ends when the last of them did. Every rank is a class of its own in the result
// (keep_apart()), and its steps' beginnings are recorded; `compute` is the time that work took.
ExecutionResult execute_on_cores(const ProgramJob& job, const CostOfCall& work,
                                 const SharedCores& shared);

}  // namespace lockstep::sim
