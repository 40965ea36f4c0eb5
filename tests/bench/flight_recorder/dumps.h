// Flight Recorder dumps of jobs of any size, healthy and faulty, byte for byte of the form that
// PyTorch 2.11 to 2.15 write (protocol 2, version "2.10"; one file per rank).
//
// The job: data-parallel training with 20 gradient buckets a step, 40 steps or more done, each
// rank's ring holding its newest calls. With three groups every call in three goes to the rank's
// tensor-parallel group (8 neighbours) and every call in three to its data-parallel group (ranks
// with the same place in their tensor-parallel groups).
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace lockstep {

enum class DumpFault : std::uint8_t {
  none,          // dumped while it runs: ranks differ in how far they are
  host_stall,    // the last rank never makes the last call
  device_stall,  // the last rank made all calls, its device finished none of the last step's
  size,          // the last rank's last call is of another size
  skip,          // the last rank left out a call of the last step
};

struct DumpJob {
  int ranks = 8;
  int entries = 2000;  // that each ring holds
  int groups = 1;      // 1 or 3
  DumpFault fault = DumpFault::none;
};

// The dump of one rank: about 140 bytes an entry, frames shared as PyTorch shares them.
std::string make_dump(const DumpJob& job, int rank);

// Writes `folder`/nccl_trace_rank_<r> for every rank; creates the folder.
// Errors: a job of no ranks, entries or groups 1 or 3; a file that cannot be written.
Status write_dumps(const DumpJob& job, const std::string& folder);

// "host-stall" and the like; nothing for a word that names no fault.
bool parse_fault(const std::string& word, DumpFault& out);

}  // namespace lockstep
