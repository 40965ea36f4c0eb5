// What NCCL's RAS subsystem says of a running job, as its client prints it: `ncclras` (text; with
// `-v` all outliers) and `ncclras -f json`, NCCL 2.24 to 2.31.
//
//   #0-0 (78db921d1c117b4a) MISMATCH
//     Communicator ranks have different AllReduce operation counts
//     7 ranks have launched up to operation 64
//     Rank 7 has launched up to operation 60 -- GPU 3 managed by process 1650386 on node node1
//   #0-0 (1bdb83b038775869) INCOMPLETE
//     Missing communicator data from 1 rank
//     Rank 7 -- GPU 3 managed by process 3748990 on node node1
//
// Sources: nccl src/ras/client_support.cc, its user guide. A rank is one of its communicator: the
// largest communicator's is taken as the global one, others are known by their process. Counts are
// of calls launched, per type of operation and not their order; RAS asks a job that goes on
// meanwhile, so that a difference of a few calls shows no fault: notes alone come of it.
#pragma once

#include "trace/evidence/evidence.h"

namespace lockstep::trace {

EvidenceSource ras_source();

}  // namespace lockstep::trace
