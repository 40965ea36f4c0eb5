// Tables of published measurements, in a form in which each row can be predicted.
//
// Five forms of JSON, recognised by their keys (docs/simulate-workloads.md shows each):
//
//   vTrain       "columns" with "iteration time (ms)": Megatron-DeepSpeed steps (arXiv 2312.12391)
//   Megatron     "columns" with "iteration_s_derived": arXiv 2104.04473, table 1
//   torchtitan   "rows" of objects with "tps_gpu", or "vanilla" and "async_": Llama 3 with FSDP
//   NeMo         "framework": "NeMo" and "rows" of objects with "step_s": NVIDIA's published steps
//   nccl-tests   "machines" with rows of bytes and times: all-reduces
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "sim/transformer/transformer.h"

namespace lockstep::sim {

struct MeasuredStep {
  std::string label;  // describes the row: "8 GPUs, B 16, b 2, h 1024, L 24, t 1 d 2 p 4"
  Transformer model;
  TrainingPlan plan;
  // Megatron's table does not give the micro-batch and reports the best time: several are tried.
  bool micro_batch_unknown = false;
  double seconds = 0;
  bool as_tokens = false;              // measured as tokens per second and GPU
  std::optional<double> memory_bytes;  // the fullest rank's
};

struct MeasuredCollective {
  std::string label;
  std::string machine;  // its name in the table
  std::int64_t ranks = 0;
  std::int64_t nodes = 1;
  std::int64_t bytes = 0;
  double seconds = 0;  // nccl-tests' out-of-place time
};

struct MeasuredTable {
  std::string file;
  std::string machine_type;  // names the calibration: "a100-node", "a100-cluster", "dgx-a100",
                             // "h100-cluster", …
  std::string letters;       // what the letters of the steps' labels stand for
  std::vector<MeasuredStep> steps;
  std::vector<MeasuredCollective> collectives;
};

// The most rows that a table may have.
inline constexpr std::size_t kMaxTableRows = 200'000;

// Parses `text`. Errors, with file and row: not JSON, none of the forms, a missing column, a row of
// another length, a value that is not a number or out of range, a misspelt key, an impossible plan.
Result<MeasuredTable> parse_measured_table(const std::string& text, const std::string& file);

// Reads and parses the table at `path`, at most 256 MiB. Errors: parse_measured_table()'s; a file
// that cannot be read.
Result<MeasuredTable> load_measured_table(const std::string& path);

}  // namespace lockstep::sim
