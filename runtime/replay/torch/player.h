// Plays one rank of a program (runtime/replay/program.h): creates its process groups, issues its
// calls with tensors of their sizes, waits where it waited, and ends as it ended.
//
// The transport decides the order among ranks, as always, with two exceptions. A rank that ends
// before the others (killed, or by an exception) waits until they have issued all calls that they
// issued in the recording. A call that does not fit its partners reaches Gloo only when the ranks
// that have such calls wait (transport.h). Ranks coordinate both through the store, with bounded
// patience, because a rank may have been stopped.
//
// On a device that queues calls (NCCL), synchronous calls run in the rank's own queue and a wait
// only orders them, as in training: the host runs ahead of its calls, and waits for its queue at
// the end of its program.
#pragma once

#include "runtime/groups/process_groups.h"
#include "runtime/record/recorder.h"
#include "trace/run.h"

namespace lockstep::runtime {

// Upper bound of the records that playing the rank writes.
std::uint64_t records_of(const trace::RankTrace& trace);

// Plays `rank`, and returns how its program ends: clean, or hung, in which case it must block from
// now on. A rank that was killed kills itself and does not return. Throws what c10d throws, and the
// recorded exception if the program ends with one. `program`: of all ranks. O(calls), plus the time
// of the transport.
trace::End play(const trace::Run& program, trace::Rank rank, ProcessGroups& groups,
                Recorder& recorder);

}  // namespace lockstep::runtime
