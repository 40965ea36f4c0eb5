// Which GPU of its host a rank uses: the index that nvidia-smi shows. People need it to look at the
// right device, so a doubtful index is dropped rather than shown.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "trace/run.h"

namespace lockstep::trace {

// The number as an index of a GPU; kNone where it cannot be one.
std::int32_t gpu_index(std::int64_t number);

// Where another recording of a job says that a rank ran.
struct RankLocation {
  Rank rank;
  std::int32_t world_size = 0;  // of that recording
  std::string host;             // empty: not known
  std::int64_t pid = kNone;
  std::int32_t gpu = kNone;
};

// Fills in host, process and GPU of traces that lack them: from notes about their rank and from
// `others`, where these do not contradict each other. A recording of fewer ranks than the job has
// does not count: NCCL's log numbers ranks within a communicator. O(ranks + notes + others).
void locate_ranks(Run& run, std::span<const RankLocation> others);

// Drops the GPUs of traces and notes that cannot be nvidia-smi's indices. Logs and profiles have
// CUDA's, counted within the process: where each process sees one GPU (CUDA_VISIBLE_DEVICES), that
// is 0 for all of them. So the indices of a host count if no two ranks have the same; where no host
// is known, if not all ranks have the same; and a single 0 never does. O(ranks + notes).
void keep_plausible_gpus(Run& run);

}  // namespace lockstep::trace
