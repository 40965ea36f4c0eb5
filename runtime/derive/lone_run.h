// Looking at what ranks of a job would call, without running the job: a worker that plays each of
// them, one after the other, without the others (`lockstep-worker alone`).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/interrupts.h"
#include "base/result.h"
#include "runtime/job/lone_ranks.h"
#include "runtime/launch/process.h"

namespace lockstep::runtime {

struct LoneOptions {
  std::string worker;    // the worker program
  std::string folder;    // for the list that it is given, and its log
  bool on_meta = false;  // with tensors that have no values
};

// A worker that looks at `ranks` in their order, so that those that read what a rank 0 broadcasts
// come behind it. It goes on by itself, and is killed with this object.
class LoneRun {
 public:
  // Errors: a file that cannot be written, a worker that cannot be started.
  static Result<LoneRun> start(const std::vector<LoneRanks>& ranks, const LoneOptions& options);

  // How many of `ranks` it says it has looked at; reads its log.
  std::size_t finished() const;
  // Nothing while it runs; never blocks. Then the worker's version. A rank whose program ends by an
  // exception has a trace that ends so; that is no error. Errors: a worker that refuses a scenario
  // or is killed; its log's last lines say why.
  std::optional<Result<std::string>> poll();
  // Whether it ended by refusing what it was asked for, and not by a signal or want of memory.
  bool refused() const { return refused_; }

 private:
  LoneRun(Process process, std::string log) : process_(std::move(process)), log_(std::move(log)) {}

  Process process_;
  std::string log_;
  bool refused_ = false;
};

// The same to its end. Errors: those of both; interrupted: an error that says so.
Result<std::string> run_alone(const std::vector<LoneRanks>& ranks, const LoneOptions& options,
                              Interrupts& interrupts,
                              const std::function<void(std::size_t)>& on_finished);

}  // namespace lockstep::runtime
