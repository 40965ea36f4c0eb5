// Deriving a scenario: which workers run alone, and what is made of their traces.
#pragma once

#include <string>
#include <vector>

#include "reports/exit_status.h"

namespace lockstep::runtime {

struct DeriveOptions {
  std::string path;                    // the scenario file
  std::string output_dir;              // new; keeps scenarios, traces and product.json; empty: none
  std::string against;                 // a folder with a recorded run of this scenario; empty: none
  std::string certificate;             // file; empty: none
  std::string write_scenario;          // file, for the counterexample; empty: none
  std::vector<std::string> outputs;    // KIND=PATH
  bool remedies = false;               // where the job can go wrong: derives each remedy, too
  bool meta = false, no_meta = false;  // on the meta device; neither: as it suits the job
  bool quiet = false;
};

// Decides for all mixes of batches, or compares what each rank would call with what the run
// `against` did, and prints it. Status: 0 no mix goes wrong, or the run did as derived; 1 else; 3
// inconclusive; 4 a report cannot be written; 2 a scenario that cannot be used or derived, a worker
// that is not there or fails. Errors are printed.
reports::ExitStatus derive_scenario(const DeriveOptions& options);

}  // namespace lockstep::runtime
