// Runs a job's programs where ranks have to share processor cores, and communicate by processors:
// Gloo over the loopback of a machine.
//
// What a rank works, and its part of every hop of a call, need a core of its node. Threads that
// want one have it in the order in which they came, until they block, or others wait and a slice of
// time is over: what Linux does with threads that do not take the processor from each other when
// they are woken. So a rank that was late to wake stays behind the others, and a call beside which
// ranks compute waits for a core at each of its hops. Cores that are busy at the same time share
// caches and memory and slow each other down. When something ends depends on what else goes on:
// events are taken in the order of time, ties by rank and step. Where there are cores enough the
// times are those of execute().
//
// O((operations + hops of calls + bounded turns) · (cores + log(ranks))).
#pragma once

#include <cstdint>
#include <vector>

#include "sim/engine/core_pool.h"
#include "sim/engine/executor.h"
#include "sim/engine/program.h"

namespace lockstep::sim {

struct SharedCores {
  CoreSpeeds speeds;                   // of each node
  std::vector<std::uint32_t> node_of;  // of each rank of the job: 0, 1, …
  Picos wake;                          // until a thread can run that a hop has come for
  // … on top of that, at the first hop of a call whose group has rested for kRest.
  Picos start;
  // What a rank's work takes longer, at most, after it waited for a call: others had the caches
  // meanwhile, for no longer than it waited, and no work takes more than twice as long.
  Picos refill;
};
// As long as Linux's KVM polls for work before it lets a processor sleep (halt_poll_ns).
inline constexpr Picos kRest{200'000'000};

// `cost`: what each member of the group works for a call, on a core, once all have come: in equal
// parts at its hops. The call ends when the last of them is done. Every rank is a class of its own
// in the result (keep_apart()), and its steps' beginnings are recorded; `compute` is the time that
// work took. `variation`, not owned: of what is worked.
ExecutionResult execute_on_cores(const ProgramJob& job, const CostOfCall& cost,
                                 const SharedCores& shared, const Variation* variation = nullptr);

}  // namespace lockstep::sim
