// The ring file of one rank of a job.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "runtime/job/scenario.h"
#include "trace/formats/ring/writer.h"

namespace lockstep::runtime {

// FOLDER/rank_RANK + suffix: the name of a file that a rank writes.
std::string file_of_rank(const std::string& folder, int rank, const char* suffix);

// An estimate of the number of records of all the job's steps.
std::uint64_t records_of(const Scenario& scenario, int rank);

struct JobRing {
  int rank = 0, world_size = 1;
  std::string folder;
  std::uint64_t records = 0;  // capacity, within bounds
  bool queued = false;        // Gloo's calls are queued like NCCL's; noted in the trace
};

// Creates FOLDER/rank_RANK.ring. Errors: those of RingWriter::create.
Result<std::unique_ptr<trace::RingWriter>> make_job_ring(const Scenario& scenario,
                                                         const JobRing& options);

}  // namespace lockstep::runtime
