// NCCL's own logs, written with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,COLL: one file per
// process (NCCL_DEBUG_FILE=nccl.%h.%p) or the output of several, with whatever a launcher puts
// before a line.
//
//   host:pid:tid [0] NCCL INFO ncclCommInitRank comm 0x5… rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId
//       1000 commId 0x8b… - Init COMPLETE
//   host:pid:tid [0] NCCL INFO AllReduce: opCount 1a sendbuff 0x7… recvbuff 0x7… count 1024
//   datatype
//       7 op 0 root 0 comm 0x5… [nranks=4] stream 0x5…
//
// Sources: NVIDIA/nccl src/enqueue.cc, src/init.cc, src/nccl.h.in, src/debug.cc, versions 2.7 to
// 2.28. opCount and pointers are hexadecimal, the rest decimal; `root` of Send and Recv is the
// peer; ranks are those of the communicator; `count` is that of the C call (per rank for AllGather,
// ReduceScatter and AlltoAll).
//
// A communicator is one over all processes by its commId; one made by ncclCommSplit by its parent,
// the count of splits and the color. `link` puts the communicators together over all files: it
// names the largest "world", translates ranks of communicators into global ones, and fills in
// members where all of them were found. A process's global rank is that of PyTorch's prefix
// "[rank3]:", else (one process in the file) that of the file's name, else its rank in the largest
// communicator; where these collide, processes are numbered by host and pid.
//
// Where the log's beginning is missing, opCount lines the calls up as long as it grows with each of
// a communicator's calls (calls of one ncclGroup share a number: then nothing does).
//
// Memory: at most kNcclLogMemoryFactor times the file's size (where every line is of another
// process; of calls alone, 4 times at most).
#pragma once

#include <cstddef>

#include "trace/formats/format.h"

namespace lockstep::trace {

inline constexpr std::size_t kNcclLogMemoryFactor = 24;

Format nccl_log_format();

}  // namespace lockstep::trace
