// WorkerResult numbers: what a worker leaves beside its trace, rank_<r>.result.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace lockstep::runtime {

struct WorkerNumbers {
  std::int64_t steps = 0;
  std::optional<double> first_loss, last_loss;
  double step_ms_median = 0;
  double samples_per_s = 0;
  double watch_share = 0;            // … taking fingerprints of tensors
  double recording_share = 0;        // of the time of the steps
  double data_wait_share = 0;        // … spent waiting for data
  std::int64_t skipped_items = 0;    // that could not be read
  std::optional<double> idle_share;  // … spent waiting for other stages; pipelines only
  std::int64_t peak_rss_bytes = 0;
  struct Balance {  // data.balance: cost; the same on all ranks
    std::int64_t fixed_steps = 0, balanced_steps = 0;
    double fixed_idle_share = 0, balanced_idle_share = 0;  // 1 - mean / largest computing time
    double image_ms = 0, text_ms = 0;
  };
  std::optional<Balance> balance;
  struct Retrieval {
    // Shares of held-out images whose caption came first, and among the first 5 and 10.
    double recall_at_1 = 0, recall_at_5 = 0, recall_at_10 = 0;
    double chance = 0;
    std::int64_t items = 0;
    std::vector<double> image_sketches;  // 8 values an image: trace/values/fingerprint.h
  };
  std::optional<Retrieval> retrieval;
  std::vector<double> step_flops;  // of rank 0, looked at alone; else empty
};

// Nothing where the file is absent (the worker died before it could write it) or makes no sense.
std::optional<WorkerNumbers> read_worker_numbers(const std::string& path);

// Where a worker hung, in a line, from the stacks that it left (rank_<r>.stack).

// The functions of the first thread that has a stack, innermost first, without their arguments and
// without frames that have no name: "poll < gloo::... < lockstep::TrainLoop::run", a few of them.
// Where the kernel kept the thread from telling, what is said instead. Empty: no such file.
std::string hanging_place(const std::string& stack_file);

// Completes the trace of a process that is gone and could not say so itself.

// Writes the end mark `killed` into a ring file that has none. The process that wrote the file must
// have ended. A file that has a mark keeps it. Errors: no ring file, or it cannot be written.
Status mark_killed(const std::string& ring_file);

}  // namespace lockstep::runtime
