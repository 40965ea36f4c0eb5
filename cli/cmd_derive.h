// `lockstep derive SCENARIO`: a scenario file, derived in a folder of its own.
#pragma once

#include <string>
#include <vector>

#include "reports/exit_status.h"

namespace lockstep {

struct DeriveCommand {
  std::string path;                                              // the scenario file
  std::string output_dir, against, certificate, write_scenario;  // empty: none
  std::vector<std::string> outputs;                              // KIND=PATH
  bool remedies = false;
  bool meta = false, no_meta = false;  // neither: as it suits the job
  bool quiet = false;
};

// Derives, and prints what was decided, or how it compares with the run `against`. Status: that of
// derive() or derive_against() (runtime/derive/derive.h); 2 for their errors, a scenario that
// cannot be used and a worker that is not there, which are printed.
ExitStatus derive_scenario(const DeriveCommand& command);

}  // namespace lockstep
