// What a worker is asked to look at alone, without the other ranks of the job: the list that
// `lockstep derive` writes and `lockstep-worker alone` reads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace lockstep::runtime {

// One rank, alone; or those that need each other's messages, together.
struct LoneRanks {
  std::string scenario;    // file
  std::vector<int> ranks;  // of the scenario's; at least one
  std::string folder;      // for their traces, rank_<r>.ring; exists
  // The file of what rank 0 broadcasts (docs/derive.md): rank 0 writes it, others read it.
  std::string broadcasts;
  std::vector<std::int64_t> dissent;  // steps in which another rank dissents
  // Another such file: where rank 0 broadcast the same, these ranks show nothing new, and are left
  // out.
  std::string unless_same_as;
  // What is kept of their work beside the trace (trace/work_costs.h).
  enum class Costs : std::uint8_t {
    none,
    counts,  // operations, bytes, kernels
    times,   // how long it took, here and now
  } costs = Costs::none;
};

// The list in JSON: [{"scenario": FILE, "ranks": [0], "trace": FOLDER, "broadcasts": FILE,
// "dissent": [1, 3], "unless_same_as": FILE, "costs": "counts"}, …].
std::string lone_ranks_text(const std::vector<LoneRanks>& list);

// The list in a file; the last three keys can be left out. Errors: it cannot be read, or is no such
// list.
Result<std::vector<LoneRanks>> read_lone_ranks(const std::string& file);

}  // namespace lockstep::runtime
