// Ranks looked at without the others, one after the other in this process: what each would call.
// The stages of a pipeline, which need each other's messages, are looked at together.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

// Which costs are kept of a rank that is looked at alone (runtime/derive/torch/work_count.h).

namespace lockstep {

// What is kept of a rank's work beside its trace.
enum class KeptCosts : std::uint8_t {
  none,
  counts,  // operations, bytes, kernels
  times,   // how long it took, here and now
};

struct LoneRun {
  std::string scenario;    // file
  std::vector<int> ranks;  // of the scenario's; several exchange their messages (messages.h)
  std::string trace;       // folder for rank_<r>.ring; exists
  // The file of what rank 0 broadcasts (runtime/derive/torch/broadcasts.h): rank 0 writes it,
  // others read it.
  std::string broadcasts;
  std::vector<std::int64_t> dissent;  // steps in which another rank dissents
  // Another such file: where rank 0 broadcast the same, this run shows nothing new, and is left
  // out.
  std::string unless_same_as;
  KeptCosts costs = KeptCosts::none;  // beside the trace: trace/work_costs.h
};

// A list in JSON: [{"scenario": FILE, "ranks": [0], "trace": FOLDER, "broadcasts": FILE,
// "dissent": [1, 3], "unless_same_as": FILE, "costs": "counts"}, …]; the last three can be left
// out. Errors: it cannot be read, or is no such list.
Result<std::vector<LoneRun>> read_lone_runs(const std::string& file);

// Why ranks were not looked at.
struct LoneFailure {
  Error error;
  // By the scenario, which cannot be read or run; asked again, the answer is the same. Else a file
  // could not be read or written.
  bool refused = false;
};

// Trains each as a rank of its scenario's job, from the first step to the last: what it calls
// completes at once (instant_backend.h), and is in its trace. A rank whose program ends by an
// exception has a trace that ends so. `on_meta`: with tensors that have no values
// (runtime/derive/torch/meta_tensors.h). After each a line "alone: <number>" goes to standard
// output. Nothing: all were looked at.
std::optional<LoneFailure> run_alone(const std::vector<LoneRun>& runs, bool on_meta);

}  // namespace lockstep
