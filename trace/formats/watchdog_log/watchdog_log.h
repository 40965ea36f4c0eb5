// What PyTorch's NCCL watchdog wrote into a job's log before it ended the job: for whom there is
// nothing but the output. One rank or several in a file, in any order, between any other lines.
//
//   [rank3]:[E… ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective operation timeout:
//       WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=1024, NumelOut=1024, Timeout(ms)=600000) ran
//       …
//   [rank3]:[E…] [PG ID 0 PG GUID 0(default_pg) Rank 3] failure detected by watchdog at work
//   sequence
//       id: 12 PG status: last enqueued work: 14, last completed work: 11
//   [rank1]: Traceback (most recent call last):
//   [rank1]: ValueError: no more batches
//
// Sources: pytorch torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp (checkTimeout, logPrefix,
// watchdogHandler, heartbeatMonitor), 1.13 to 2.11, and logs that users showed in public issues.
// SeqNum counts a group's calls from 1; "last enqueued" and "last completed" are numbers of that
// kind, -1 before the first; of groups with messages they mix two counters, so that for a failed
// send, receive or coalesced batch they are not taken. "Rank" within brackets is the rank in the
// group; the global one is that of the prefix "[rank3]:", or the same in the default group.
//
// A rank's trace holds the calls that timed out, how far it got in each group
// (RankTrace::progress), and its exceptions. `link` adds to each rank the calls that others timed
// out in and that it, by its counters, had issued too, and the last call that all of them
// completed: as calls of which nothing else is known.
#pragma once

#include <cstddef>

#include "trace/formats/format.h"

namespace lockstep::trace {

inline constexpr std::size_t kWatchdogLogMemoryFactor = 40;

Format watchdog_log_format();

}  // namespace lockstep::trace
