// Looking at what ranks of a job would call, without running the job: a worker that plays each of
// them, one after the other, without the others (`lockstep-worker alone`).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "launch/interrupts.h"

namespace lockstep {

// One rank, alone; or those that need each other's messages, together.
struct LoneRanks {
  std::string scenario;  // file
  std::vector<int> ranks;
  std::string folder;                 // of their traces; exists
  std::string broadcasts;             // the file of what rank 0 broadcasts (docs/derive.md)
  std::vector<std::int64_t> dissent;  // steps in which another rank dissents
  // Another file of what rank 0 broadcasts: where both are equal, they are not looked at.
  std::string unless_same_as;
  // What is kept of its work beside the trace (trace/work_costs.h): counts, or the times that it
  // takes here and now.
  enum class Costs : std::uint8_t { none, counts, times } costs = Costs::none;
};

struct LoneOptions {
  std::string worker;    // the worker program
  std::string folder;    // for the list that it is given, and its log
  bool on_meta = false;  // with tensors that have no values
};

// Looks at `ranks` in this order: those that read what a rank 0 broadcasts come behind it. A rank
// whose program ends by an exception has a trace that ends so; that is no error.
// Returns the worker's version. Errors: a worker that cannot be started, refuses a scenario or is
// killed; its log's last lines say why. Interrupted: an error that says so.
Result<std::string> run_alone(const std::vector<LoneRanks>& ranks, const LoneOptions& options,
                              Interrupts& interrupts,
                              const std::function<void(std::size_t)>& on_finished);

}  // namespace lockstep
