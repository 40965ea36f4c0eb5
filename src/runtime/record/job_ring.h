// The ring file of one rank of a job.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "job/scenario.h"
#include "trace/ring_writer.h"

namespace lockstep {

// FOLDER/rank_RANK + suffix: what a rank leaves.
std::string file_of_rank(const std::string& folder, int rank, const char* suffix);

// FOLDER/rank_RANK.ring, with room for all that the job's steps are expected to record, within
// bounds. Errors: RingWriter::create's.
Result<std::unique_ptr<RingWriter>> make_job_ring(const Scenario& scenario, int rank,
                                                  int world_size, const std::string& folder);

// The same with room for so many records, within bounds.
Result<std::unique_ptr<RingWriter>> make_job_ring(const Scenario& scenario, int rank,
                                                  int world_size, const std::string& folder,
                                                  std::uint64_t records);

}  // namespace lockstep
