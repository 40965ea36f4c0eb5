// The metrics of a run, one JSON object a line and step: rank_<r>.metrics.jsonl.
//
//   {"step":0,"loss":3.2,"lr":0.001,"loss_scale":1,"ms":41.2,"data_ms":0.8,"wait_ms":3.1,
//    "samples":8,"samples_per_s":194.1,"rss_bytes":182456320}
//
// With data.balance: cost also "balanced" (the step's batches were shared out by cost) and, from
// the third step on, "idle_share_before".
#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

namespace lockstep {

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

}  // namespace lockstep
