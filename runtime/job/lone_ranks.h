// The JSON files that `lockstep` and a worker that runs single ranks of a job exchange.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace lockstep::runtime {

// The list of ranks that a worker runs without the other ranks of the job: `lockstep derive` writes
// it, `lockstep-worker alone` reads it.

// One rank that runs alone; or several that need each other's messages, and run together.
struct LoneRanks {
  std::string scenario;    // file
  std::vector<int> ranks;  // of the scenario; at least one
  std::string folder;      // for their traces, rank_<r>.ring; must exist
  // The file with rank 0's broadcasts (docs/derive.md): rank 0 writes it, others read it.
  std::string broadcasts;
  std::vector<std::int64_t> dissent;  // steps in which another rank dissents
  // Another such file: if rank 0 broadcast the same there, these ranks are skipped, because their
  // traces would be the same.
  std::string unless_same_as = {};
  // What to record of their work in addition to the trace (trace/work_costs.h).
  enum class Costs : std::uint8_t {
    none,
    counts,  // operations, bytes, kernels
    times,   // measured time on this machine
  } costs = Costs::none;
  // Steps in which gradients overflowed, as a recorded run tells. Nothing: it is a value, and rank
  // 0's counts.
  std::optional<std::vector<std::int64_t>> overflows = {};
  // Whether it is a rank of the job itself, with its own steps: then it is answered with what the
  // list's other such ranks gave (runtime/derive/torch/answers.h). Only for ranks that run alone.
  bool answered = false;
};

// The list in JSON: [{"scenario": FILE, "ranks": [0], "trace": FOLDER, "broadcasts": FILE,
// "dissent": [1, 3], "unless_same_as": FILE, "costs": "counts", "answered": true,
// "overflows": [2]}, …].
std::string lone_ranks_text(const std::vector<LoneRanks>& list);

// Reads the list; all keys from "dissent" on are optional. Errors: the file cannot be read, or is
// not such a list.
Result<std::vector<LoneRanks>> read_lone_ranks(const std::string& file);

// Which ranks of a job draw equal batches: `lockstep-worker draws` writes it, `lockstep simulate`
// reads it for jobs with too many ranks to derive each of them.

// By rank: the first rank whose drawn batches are like its own, as far as three questions show.
struct DrawnAlike {
  std::vector<std::int32_t> by_images;         // how many images each micro-batch holds
  std::vector<std::int32_t> by_micro_batches;  // which micro-batches hold images
  std::vector<std::int32_t> by_steps;          // in which steps some micro-batch does

  friend bool operator==(const DrawnAlike&, const DrawnAlike&) = default;
};

// In JSON: {"images": [0, 1, 0, …], "micro_batches": [0, 0, 0, …], "steps": [0, 0, 0, …]}.
std::string drawn_alike_text(const DrawnAlike& drawn);

// Reads it from a file. Errors: the file cannot be read; it is not such a list for `ranks` ranks.
Result<DrawnAlike> read_drawn_alike(const std::string& file, int ranks);

}  // namespace lockstep::runtime
