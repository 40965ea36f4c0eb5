// Deriving a scenario: which workers run alone, and what is made of their traces.
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "base/interrupts.h"
#include "base/result.h"
#include "reports/exit_status.h"
#include "runtime/job/scenario.h"

namespace lockstep {

struct DeriveOptions {
  std::string worker;
  std::string folder;          // exists and is empty; left with scenarios, traces and product.json
  std::string certificate;     // file; empty: none
  std::string write_scenario;  // file, for the counterexample; empty: none
  // KIND=PATH, as check_outputs() lets them through: write_product_reports().
  std::vector<std::string> outputs;
  bool remedies = false;  // derive with each remedy, too
  // On the meta device, where tensors have no values; nothing: where models or worlds are large.
  std::optional<bool> on_meta;
  bool quiet = false;
};

// Decides for all mixes of batches; prints the verdict to `said`.
// Errors: a job that cannot be derived, workers that fail, the user's signal.
Result<ExitStatus> derive(const Scenario& scenario, const DeriveOptions& options,
                          Interrupts& interrupts, std::ostream& said);

// Compares what each rank of this very job would call with what the run in `recorded` did: a run
// that was stopped did the beginning of it. Errors: the same, and a folder without traces.
Result<ExitStatus> derive_against(const Scenario& scenario, const std::string& recorded,
                                  const DeriveOptions& options, Interrupts& interrupts,
                                  std::ostream& said);

}  // namespace lockstep
