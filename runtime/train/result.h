// What a rank writes in addition to its trace: rank_<r>.result.json, for people and for tables.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/device/memory_account.h"

namespace lockstep::runtime {

struct Retrieval {
  // Shares of held-out images whose caption ranked first, in the first 5 and in the first 10.
  double recall_at_1 = 0, recall_at_5 = 0, recall_at_10 = 0;
  double chance = 0;  // 1 / number of captions to choose from
  int items = 0;
  // A sketch (trace/values/fingerprint.h) of each image's embedding, one after the other. Other
  // trainings of the model are compared by these.
  std::vector<double> image_sketches;
};

// Result of balancing by measured cost (runtime/train/balancer.h), the same on all ranks.
struct BalanceReport {
  struct Phase {
    int steps = 0;
    double idle_share = 0;  // mean over the steps of 1 - mean / largest computing time of the ranks
  };
  Phase fixed;                                    // while costs were unknown: the sampler's split
  Phase balanced;                                 // afterwards
  double image_ms = 0, text_ms = 0, step_ms = 0;  // costs at the end (runtime/train/cost_model.h)
};

struct WorkerResult {
  int rank = 0;
  std::vector<double> losses;  // one per finished step
  std::vector<double> step_ms;
  std::int64_t samples = 0;
  std::int64_t watch_ns = 0;      // spent on fingerprints of tensors, during the steps
  std::int64_t recording_ns = 0;  // inside the recorder, over all threads, during the steps
  std::uint64_t recording_events = 0;
  // part of the steps spent waiting for other stages; pipeline only
  std::optional<std::int64_t> idle_ns;
  std::optional<BalanceReport> balance;
  std::optional<Retrieval> retrieval;
  std::int64_t skipped = 0;                   // items that could not be read
  double data_wait_ms = 0;                    // waiting for the loader, over all steps
  std::optional<DeviceMemory> device_memory;  // at the end, if the device counts memory
  // Floating-point operations of each step, of a rank 0 that runs alone
  // (runtime/device/operation_cost.h).
  std::vector<double> step_flops;
  bool times_mean_nothing = false;  // ranks shared GPUs
  std::optional<std::string> error;
};

// Writes the result, with derived values (median step, throughput, shares) and this process's peak
// memory. Errors: the file cannot be written.
Status write_result(const WorkerResult& result, const std::string& path);

// The metrics of a run: rank_<r>.metrics.jsonl, one JSON object per step.
//
//  {"step":0,"loss":3.2,"lr":0.001,"loss_scale":1,"ms":41.2,"data_ms":0.8,"wait_ms":3.1,
//   "samples":8,"samples_per_s":194.1,"rss_bytes":182456320}
//
// With data.balance: cost also "balanced" (the step's batches were split by cost) and, from the
// third step on, "idle_share_before".

struct StepMetrics {
  std::int64_t step = 0;
  double loss = 0;
  double learning_rate = 0;
  double loss_scale = 1;
  double ms = 0;       // wall time of the step
  double data_ms = 0;  // … of which waiting for data
  double wait_ms = 0;  // … and waiting inside collectives and messages
  std::int64_t samples = 0;
  // With data.balance: cost.
  std::optional<bool> balanced;
  // 1 - mean / largest computing time of the ranks, in the step before.
  std::optional<double> idle_share_before;
};

// The resident memory of a process; 0 if there is none.
std::int64_t resident_bytes(pid_t process);

class StepLog {
 public:
  // If the file cannot be written, metrics are lost and training continues.
  explicit StepLog(const std::string& path) : out_(path) {}
  // Writes the line and flushes it. Adds this process's resident memory.
  void write(const StepMetrics& metrics);

 private:
  std::ofstream out_;
};

}  // namespace lockstep::runtime
