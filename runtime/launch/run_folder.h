// The folder of one run: traces, logs, results and the scenario that was run; and reading what the
// workers left in it.
#pragma once

#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/job/scenario.h"
#include "trace/run.h"

namespace lockstep::runtime {

// The folder's name if the user gives none: "<stem of the scenario's file>-<UTC time>".
std::string run_folder_name(const std::string& scenario_file, std::time_t now);

// Creates the folder and copies the scenario's file into it. With `may_rename`, adds a number if a
// folder of that name exists. Returns the folder. Errors: it cannot be created, or holds the traces
// of an earlier run.
Result<std::string> make_run_folder(const std::string& folder, const Scenario& scenario,
                                    bool may_rename);

std::string ring_file(const std::string& folder, int rank);
std::string log_file(const std::string& folder, int rank);
std::string result_file(const std::string& folder, int rank);
std::string stack_file(const std::string& folder, int rank);
std::string store_file(const std::string& folder);

// The last lines of a log, at most `lines`, from its last few KB; safe to print.
std::vector<std::string> last_lines(const std::string& file, std::size_t lines);

// The error at the end of a log, parsed back into an Error; nothing if it ends otherwise.
std::optional<Error> last_error(const std::string& log);

// rank_<r>.result.json.
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

// Where a worker hung, in one line, from the stacks that it wrote (rank_<r>.stack): a few functions
// of the first thread that has a stack, innermost first, without arguments and without unnamed
// frames: "poll < gloo::... < lockstep::TrainLoop::run". If the stack could not be read, the reason
// that the file gives. Empty if there is no file.
std::string hanging_location(const std::string& stack_file);

// Completes the trace of a process that could not do so itself: writes the end mark (killed, or
// interrupted) into a ring file that has none; an existing mark is kept. The process that wrote the
// file must have ended, or be stopped for good. Errors: not a ring file, or it cannot be written.
Status mark_ended(const std::string& ring_file, trace::End end);

}  // namespace lockstep::runtime
