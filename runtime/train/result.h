// What a rank leaves beside its trace: rank_<r>.result.json, for people and for tables.
#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/device/memory_account.h"

namespace lockstep::runtime {

struct Retrieval {
  // Shares of held-out images whose caption came first, and among the first 5 and 10.
  double recall_at_1 = 0, recall_at_5 = 0, recall_at_10 = 0;
  double chance = 0;  // 1 / number of captions to choose from
  int items = 0;
  // A sketch (trace/values/fingerprint.h) of each image's embedding, one after the other: what
  // other trainings of the model are compared by.
  std::vector<double> image_sketches;
};

// What balancing by measured cost came to (runtime/train/balancer.h), the same on all ranks.
struct BalanceReport {
  struct Phase {
    int steps = 0;
    double idle_share = 0;  // mean over the steps of 1 - mean / largest computing time of the ranks
  };
  Phase fixed;     // while nothing was known of the costs: the sampler's own split
  Phase balanced;  // afterwards
  double image_ms = 0, text_ms = 0, step_ms = 0;  // costs at the end (runtime/train/cost_model.h)
};

struct WorkerResult {
  int rank = 0;
  std::vector<double> losses;  // one per finished step
  std::vector<double> step_ms;
  std::int64_t samples = 0;
  std::int64_t watch_ns = 0;      // taking fingerprints of tensors, during the steps
  std::int64_t recording_ns = 0;  // inside the recorder, over all threads, during the steps
  std::uint64_t recording_events = 0;
  std::optional<std::int64_t> idle_ns;  // of the steps, waiting for other stages; pipeline only
  std::optional<BalanceReport> balance;
  std::optional<Retrieval> retrieval;
  std::int64_t skipped = 0;                   // items that could not be read
  double data_wait_ms = 0;                    // over all steps: waiting for the loader
  std::optional<DeviceMemory> device_memory;  // at the end, where the device counts
  // Of rank 0, where it is alone: floating-point operations of each step
  // (runtime/device/operation_cost.h).
  std::vector<double> step_flops;
  bool times_mean_nothing = false;  // ranks shared GPUs
  std::optional<std::string> error;
};

// Adds what can be derived (median step, throughput, shares) and this process's peak memory.
// Errors: the file cannot be written.
Status write_result(const WorkerResult& result, const std::string& path);

// The metrics of a run, one JSON object a line and step: rank_<r>.metrics.jsonl.
//
//   {"step":0,"loss":3.2,"lr":0.001,"loss_scale":1,"ms":41.2,"data_ms":0.8,"wait_ms":3.1,
//    "samples":8,"samples_per_s":194.1,"rss_bytes":182456320}
//
// With data.balance: cost also "balanced" (the step's batches were shared out by cost) and, from
// the third step on, "idle_share_before".

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
  // Over all ranks, of the step before this: 1 - mean / largest computing time.
  std::optional<double> idle_share_before;
};

class StepLog {
 public:
  // A file that cannot be written costs the metrics, not the training.
  explicit StepLog(const std::string& path) : out_(path) {}
  // Adds this process's resident memory, and writes the line at once.
  void write(const StepMetrics& metrics);

 private:
  std::ofstream out_;
};

}  // namespace lockstep::runtime
