// What a rank computes between its calls, as costs: operations, bytes and kernels, that no machine
// has turned into time yet. A file beside the rank's trace, rank_<r>.costs.json, since a trace
// (docs/trace-format.md) has no keys for it; docs/simulate-scenarios.md describes the file.
//
// A stretch of work ends where the rank calls, waits or finishes a step, and is known by that: the
// call's id, or the step's number. It also ends where a checkpoint was saved or the model
// evaluated, which happens between two steps or after the last one; the trace has no event for
// these. What comes before the first stretch that is named, or behind the last, is none.
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
  std::int64_t id = 0;  // of the call; of a step, or of the last one before the others, its number
  std::int64_t step = 0;  // in which it was done; -1: before the first one
  // Floating-point operations of matrix products (attention among them) and of convolutions, by the
  // type of what is multiplied: "float32". A multiplication and an addition count as two.
  struct Flops {
    std::string dtype;
    double matmul = 0, convolution = 0;
    friend bool operator==(const Flops&, const Flops&) = default;
  };
  std::vector<Flops> flops;
  double product_bytes = 0;     // read and written by the kernels that `flops` counts
  double memory_bytes = 0;      // … by all others
  std::int64_t kernels = 0;     // both kinds
  std::int64_t operations = 0;  // all that was dispatched: views, allocations and wrappings as well
  std::int64_t nanos = 0;       // of a processor that it took where recorded; 0: not measured
  std::optional<StretchMemory> memory;  // what the rank holds; nothing: not counted
  // What it took here over what a machine's rates give; in no file (sim/machine/work_time.h).
  double correction = 1;

  friend bool operator==(const WorkCost&, const WorkCost&) = default;
};

// Whether the stretch ends what lies between two steps, or after the last; the trace has no event
// there.
constexpr bool ends_between_steps(WorkCost::Before before) {
  return before == WorkCost::Before::checkpoint || before == WorkCost::Before::evaluation;
}
// Whether it ends a part of the training, and is told apart also where nothing was done.
constexpr bool ends_part(WorkCost::Before before) {
  return before == WorkCost::Before::step || ends_between_steps(before);
}

struct RankCosts {
  std::int32_t rank = 0;
  // Parameters, gradients and the optimizer's state of this rank, in bytes: the least that its
  // device must hold.
  double state_bytes = 0;
  // Of processors, that its other threads took, which prepare its samples; 0: not measured.
  std::int64_t beside_nanos = 0;
  std::vector<WorkCost> work;  // in program order

  friend bool operator==(const RankCosts&, const RankCosts&) = default;
};

// FOLDER/rank_<r>.costs.json.
std::string costs_file(const std::string& folder, std::int32_t rank);

// The file's text; types' names are of letters, digits and _. parse_work_costs gives back what was
// written.
std::string work_costs_text(const RankCosts& costs);

// `file` names the text in errors. Errors: no JSON, a key that is missing or of another type, a
// negative number, an unknown version (1, which had no memory, among them), another name of a type
// or category, more than 2^59 bytes of one, a stretch that ends above its peak. O(text).
Result<RankCosts> parse_work_costs(std::string_view text, const std::string& file);

// Errors: parse_work_costs', and those of reading; larger than 1 GiB.
Result<RankCosts> read_work_costs(const std::string& file);

}  // namespace lockstep::trace
