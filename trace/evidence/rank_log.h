// The output of a job's ranks: why one of them ended. One rank in a file, or several, whose lines
// bear the prefix that PyTorch gives them ("[rank3]:"); any other lines between.
//
//   Traceback (most recent call last):                      an exception: the last line counts
//     …
//   torch.OutOfMemoryError: CUDA out of memory. Tried …     out of memory
//   terminate called after throwing an instance of 'X'      an exception of C++, with its what()
//   Fatal Python error: Segmentation fault                  crashed
//   Root Cause (first observed failure): … rank : 3 …       torchrun's summary: rank, exit code
//   Memory cgroup out of memory: Killed process 12 (python) the kernel's log: by process
//   NVRM: Xid (PCI:0000:3b:00): 79, pid=12, …               the driver's log: by process
//   [Rank 3] Watchdog caught collective operation timeout…  PyTorch's watchdog
//   host:12:34 [0] … NCCL WARN …                            NCCL's warnings
//
// What PyTorch prefixes with a rank, nobody caught. A traceback without a prefix may have been
// caught: where the rank's output goes on behind it, it is RankNote::Kind::caught. Exceptions that
// tell another rank's end (a closed connection, an aborted communicator, a time-out) are
// Kind::peer_lost: they never say who is at fault.
//
// Whose a file is, is told by its name (TraceFile::rank), where that says "rank", or by torchrun's
// folders (…/attempt_0/3/stderr.log).
#pragma once

#include <string_view>

#include "trace/evidence/evidence.h"

namespace lockstep::trace {

EvidenceSource rank_log_source();

// What a peer's death, an abort or a time-out looks like from the other side (Gloo, NCCL, c10d,
// TCPStore), and what all ranks raise at a mismatch, whoever is at fault.
bool tells_of_a_peer(std::string_view exception);

}  // namespace lockstep::trace
