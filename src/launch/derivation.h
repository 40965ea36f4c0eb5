// Looking at what each rank of a job would call, without running the job: a worker for each rank,
// alone (`lockstep-worker train --alone`).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "job/scenario.h"
#include "launch/interrupts.h"

namespace lockstep {

// One rank, alone.
struct LoneRank {
  int rank = 0;
  std::vector<std::int64_t> dissent;  // steps in which another rank dissents
};

struct LoneOptions {
  std::string worker;      // the worker program
  std::string folder;      // of the traces; exists
  std::string broadcasts;  // the file of what rank 0 broadcasts (docs/derive.md)
};

// Runs `ranks` of the scenario in `scenario.file`, each alone, two at a time; rank 0, where it is
// among them, before the others, which read what it broadcast. A rank whose program ends by an
// exception has a trace that ends so; that is no error.
// Errors: a worker that cannot be started, is refused its scenario or is killed; its log's last
// lines say why. Interrupted: an error that says so.
Status run_alone(const Scenario& scenario, const std::vector<LoneRank>& ranks,
                 const LoneOptions& options, Interrupts& interrupts,
                 const std::function<void()>& on_finished);

}  // namespace lockstep
