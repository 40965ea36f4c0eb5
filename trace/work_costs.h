// What a rank computes between its calls, as costs: operations, bytes and kernels, independent of
// any machine's speed. They are in a file next to the rank's trace, rank_<r>.costs.json, because a
// trace (docs/trace-format.md) has no keys for them; docs/simulate-scenarios.md describes the file.
//
// A segment of work ends where the rank issues a call, waits or finishes a step, and is identified
// by that: the call's id, or the step's number. It also ends where a checkpoint was saved or the
// model evaluated, which happens between two steps or after the last one; the trace has no event
// for these. Work before the first named segment or after the last one belongs to none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "trace/memory_use.h"

namespace lockstep::trace {

struct WorkCost {
  enum class Before : std::uint8_t { call, wait, step, checkpoint, evaluation };
  Before before = Before::call;
  // The call's id; or the number of the step, for checkpoint and evaluation of the last step
  // before.
  std::int64_t id = 0;
  std::int64_t step = 0;  // the step in which the work was done; -1: before the first one
  // Floating-point operations of matrix products (including attention) and convolutions, by the
  // type of the factors: "float32". A multiplication and an addition count as two.
  struct Flops {
    std::string dtype;
    double matmul = 0, convolution = 0;
    friend bool operator==(const Flops&, const Flops&) = default;
  };
  std::vector<Flops> flops;
  double product_bytes = 0;             // read and written by the kernels that `flops` counts
  double memory_bytes = 0;              // read and written by all others
  std::int64_t kernels = 0;             // both kinds
  std::int64_t operations = 0;          // everything dispatched, including views and allocations
  std::int64_t nanos = 0;               // CPU time on the recording machine; 0: not measured
  std::optional<SegmentMemory> memory;  // the memory that the rank holds; nothing: not counted
  // Measured time over the time by a machine's rates; in no file (sim/machine/work_time.h).
  double correction = 1;

  friend bool operator==(const WorkCost&, const WorkCost&) = default;
};

// Whether the segment lies between two steps or after the last one; the trace has no event at its
// end.
constexpr bool ends_between_steps(WorkCost::Before before) {
  return before == WorkCost::Before::checkpoint || before == WorkCost::Before::evaluation;
}
// Whether it ends a part of the training, so that it is kept even if it is empty.
constexpr bool ends_part(WorkCost::Before before) {
  return before == WorkCost::Before::step || ends_between_steps(before);
}

struct RankCosts {
  std::int32_t rank = 0;
  // Parameters, gradients and the optimizer's state of this rank, in bytes: the minimum that its
  // device must hold.
  double state_bytes = 0;
  // CPU time of the rank's other threads, which prepare its samples; 0: not measured.
  std::int64_t other_threads_nanos = 0;
  std::vector<WorkCost> work;  // in program order

  friend bool operator==(const RankCosts&, const RankCosts&) = default;
};

// FOLDER/rank_<r>.costs.json.
std::string costs_file(const std::string& folder, std::int32_t rank);

// The file's text, which parse_work_costs reads back unchanged. Names of types must consist of
// letters, digits and _.
std::string work_costs_text(const RankCosts& costs);

// Parses the file's text; `file` names it in errors. Errors: no JSON, a key that is missing or has
// the wrong type, a negative number, an unknown version (also 1, which had no memory), an unknown
// name of a type or category, more than 2^59 bytes of one, a segment that ends above its peak.
// O(text).
Result<RankCosts> parse_work_costs(std::string_view text, const std::string& file);

// Errors: parse_work_costs', and those of reading; larger than 1 GiB.
Result<RankCosts> read_work_costs(const std::string& file);

}  // namespace lockstep::trace
