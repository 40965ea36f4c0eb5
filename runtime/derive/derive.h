// `lockstep derive`: runs workers for ranks alone, and decides from their traces.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "reports/exit_status.h"

namespace lockstep::runtime {

struct DeriveOptions {
  std::string path;                    // the scenario file
  std::string output_dir;              // new; keeps scenarios, traces and product.json; empty: none
  std::vector<std::string> against;    // folders with recorded runs of this scenario
  std::string certificate;             // file to write; empty: none
  std::string write_scenario;          // file for the counterexample; empty: none
  std::vector<std::string> outputs;    // KIND=PATH
  bool remedies = false;               // if the job can go wrong: derive each remedy, too
  bool meta = false, no_meta = false;  // use the meta device, or not; neither: as it suits the job
  bool quiet = false;
  FileNames name_of = [](const std::string& file) { return file; };  // what people read
};

// Decides for all mixes of batches, or compares the derived calls with the runs `against`, and
// prints the result. Status: 0 no mix goes wrong, or all runs agree; 1 otherwise; 3 inconclusive; 4
// a report cannot be written; 2 a scenario that cannot be used or derived, a worker that is missing
// or fails. Prints errors.
reports::ExitStatus derive_scenario(const DeriveOptions& options);

}  // namespace lockstep::runtime
