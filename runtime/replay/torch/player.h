// Plays one rank of a program (runtime/replay/program.h): makes its process groups, issues its
// calls with tensors of their sizes, waits where it waited, and ends as it ended.
//
// The order among ranks is the transport's, as ever, but in two places. A rank that ends before the
// others (killed, by an exception) does so when they have issued the calls that they are known to
// have issued; a call that does not fit its meeting reaches Gloo when the ranks that have such
// calls wait (transport.h). Both are asked through the store, with bounded patience, since a rank
// may have been stopped on its way.
//
// On a device that queues (NCCL) synchronous calls run in the rank's own queue and a wait only
// orders it, as in training: the host runs ahead of its calls, and waits for its queue where its
// program ends.
#pragma once

#include "runtime/groups/process_groups.h"
#include "runtime/record/recorder.h"
#include "trace/run.h"

namespace lockstep::runtime {

// Records that playing the rank may write.
std::uint64_t records_of(const trace::RankTrace& trace);

// Plays `rank`, and returns how its program ends: clean, or hung, where it stands still from now
// on. A rank that was killed kills itself and does not return.
// Throws what c10d throws, and the recorded exception where the program ends by one.
// `program`: of all ranks. O(calls) beside what the transport takes.
trace::End play(const trace::Run& program, trace::Rank rank, ProcessGroups& groups,
                Recorder& recorder);

}  // namespace lockstep::runtime
