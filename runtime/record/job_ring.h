// The ring file of one rank of a job.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "runtime/job/scenario.h"
#include "trace/formats/ring/writer.h"

namespace lockstep::runtime {

// FOLDER/rank_RANK + suffix: what a rank leaves.
std::string file_of_rank(const std::string& folder, int rank, const char* suffix);

// How many records all of the job's steps are expected to take.
std::uint64_t records_of(const Scenario& scenario, int rank);

struct JobRing {
  int rank = 0, world_size = 1;
  std::string folder;
  std::uint64_t records = 0;  // there is to be room for, within bounds
  bool queued = false;        // calls of Gloo that are queued as NCCL's are: the trace says so
};

// FOLDER/rank_RANK.ring. Errors: RingWriter::create's.
Result<std::unique_ptr<trace::RingWriter>> make_job_ring(const Scenario& scenario,
                                                         const JobRing& options);

}  // namespace lockstep::runtime
