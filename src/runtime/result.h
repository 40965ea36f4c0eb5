// What a rank leaves beside its trace: rank_<r>.result.json, for people and for tables.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace lockstep {

struct Retrieval {
  double top1 = 0;    // share of held-out images whose caption came first
  double chance = 0;  // 1 / number of captions to choose from
  int items = 0;
};

struct WorkerResult {
  int rank = 0;
  std::vector<double> losses;  // one per finished step
  std::vector<double> step_ms;
  std::int64_t samples = 0;
  std::int64_t recording_ns = 0;  // inside the recorder, over all threads, during the steps
  std::uint64_t recording_events = 0;
  std::optional<Retrieval> retrieval;
  std::optional<std::string> error;
};

// Adds what can be derived (median step, throughput, shares) and this process's peak memory.
// Errors: the file cannot be written.
Status write_result(const WorkerResult& result, const std::string& path);

}  // namespace lockstep
