// Runs ranks of a job without the others: a worker plays them one after the other (`lockstep-worker
// alone`).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/interrupts.h"
#include "base/result.h"
#include "runtime/job/lone_ranks.h"
#include "runtime/job/scenario.h"
#include "runtime/launch/process.h"

namespace lockstep::runtime {

struct LoneOptions {
  std::string worker;    // the worker program
  std::string folder;    // for the worker's list and log
  bool on_meta = false;  // with tensors without values
};

// A worker that runs `ranks` in order; ranks that need rank 0's broadcasts must come after it. It
// runs in the background, and is killed with this object.
class LoneRun {
 public:
  // Errors: a file that cannot be written, a worker that cannot be started.
  static Result<LoneRun> start(const std::vector<LoneRanks>& ranks, const LoneOptions& options);

  // How many of `ranks` are finished, read from its log.
  std::size_t finished() const;
  // Nothing while it runs; never blocks. Afterwards the worker's version. If a rank's program
  // raised an exception, its trace says so; that is not an error. Errors: a worker that refuses a
  // scenario or is killed; the last lines of its log say why.
  std::optional<Result<std::string>> poll();
  // Whether it refused its input, rather than being killed or running out of memory.
  bool refused() const { return refused_; }

 private:
  LoneRun(Process process, std::string log) : process_(std::move(process)), log_(std::move(log)) {}

  Process process_;
  std::string log_;
  bool refused_ = false;
};

// Asks a worker which ranks of a job draw equal batches, and keeps its answer as
// options.folder/draws.json. Errors: a worker that cannot be started, refuses, or fails; files that
// cannot be read or written; the user's signal.
Result<DrawnAlike> ask_who_draws_alike(const Scenario& scenario, const LoneOptions& options,
                                       Interrupts& interrupts);

// What it answered into that folder before. Errors: it did not.
Result<DrawnAlike> known_to_draw_alike(const Scenario& scenario, const std::string& folder);

// The same as LoneRun, until it ends. Errors: those of start() and poll(); the user's signal.
Result<std::string> run_alone(const std::vector<LoneRanks>& ranks, const LoneOptions& options,
                              Interrupts& interrupts,
                              const std::function<void(std::size_t)>& on_finished);

}  // namespace lockstep::runtime
