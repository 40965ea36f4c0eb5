// All ranks of a scenario alone under all histories: the traces that a product is decided from.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/result.h"
#include "job/derivation_plan.h"
#include "job/scenario.h"
#include "launch/interrupts.h"

namespace lockstep {

struct DeriveAllOptions {
  std::string worker;  // the worker program
  std::string folder;  // exists
  bool quiet = false;
};

// Runs a worker for each rank and history, and returns the folders with a product.json
// (trace/derivation.h): one, or one for each first step of rank 0 where what it broadcasts depends
// on that. Errors: those of run_alone; files that cannot be written.
Result<std::vector<std::string>> derive_all(const Scenario& scenario, const DerivationPlan& plan,
                                            const DeriveAllOptions& options,
                                            Interrupts& interrupts);

// "deriving 3 of 8" on a terminal's line, removed at the end.
class DeriveProgress {
 public:
  DeriveProgress(std::size_t total, bool silent);
  ~DeriveProgress();
  DeriveProgress(const DeriveProgress&) = delete;
  DeriveProgress& operator=(const DeriveProgress&) = delete;

  void one_more();

 private:
  std::size_t total_, done_ = 0;
  bool silent_;
};

}  // namespace lockstep
