// Reads the files that a worker leaves beside its trace. First rank_<r>.result.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "trace/run.h"

namespace lockstep::runtime {

struct WorkerNumbers {
  std::int64_t steps = 0;
  std::optional<double> first_loss, last_loss;
  double step_ms_median = 0;
  double samples_per_s = 0;
  double watch_share = 0;            // share of the steps' time spent on fingerprints of tensors
  double recording_share = 0;        // … on recording
  double data_wait_share = 0;        // … on waiting for data
  std::int64_t skipped_items = 0;    // items that could not be read
  std::optional<double> idle_share;  // … on waiting for other stages; pipelines only
  std::int64_t peak_rss_bytes = 0;
  struct Balance {  // data.balance: cost; the same on all ranks
    std::int64_t fixed_steps = 0, balanced_steps = 0;
    double fixed_idle_share = 0, balanced_idle_share = 0;  // 1 - mean / largest computing time
    double image_ms = 0, text_ms = 0;
  };
  std::optional<Balance> balance;
  struct Retrieval {
    // Shares of held-out images whose caption ranked first, in the first 5 and in the first 10.
    double recall_at_1 = 0, recall_at_5 = 0, recall_at_10 = 0;
    double chance = 0;
    std::int64_t items = 0;
    std::vector<double> image_sketches;  // 8 values per image: trace/values/fingerprint.h
  };
  std::optional<Retrieval> retrieval;
  std::vector<double> step_flops;  // of a rank 0 that ran alone; else empty
};

// Nothing if the file is absent (the worker died before it wrote it) or malformed.
std::optional<WorkerNumbers> read_worker_numbers(const std::string& path);

// Where a worker hung, in one line, from the stacks that it wrote (rank_<r>.stack).

// A few functions of the first thread that has a stack, innermost first, without arguments and
// without unnamed frames: "poll < gloo::... < lockstep::TrainLoop::run". If the stack could not be
// read, the reason that the file gives. Empty if there is no file.
std::string hanging_location(const std::string& stack_file);

// Completes the trace of a process that could not do so itself.

// Writes the end mark (killed, or interrupted) into a ring file that has none; an existing mark is
// kept. The process that wrote the file must have ended, or be stopped for good. Errors: not a ring
// file, or it cannot be written.
Status mark_ended(const std::string& ring_file, trace::End end);

}  // namespace lockstep::runtime
