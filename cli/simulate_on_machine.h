// lockstep simulate collective --machine FILE: what a machine file makes of a collective, and how
// NCCL would carry it.
#pragma once

#include <cstdint>
#include <string>

#include "cli/cmd_simulate.h"
#include "reports/exit_status.h"

namespace lockstep {

struct OnMachine {
  std::string machine;      // a file
  std::string op, bytes;    // as given; several sizes are one after the other
  std::int64_t ranks = 0;   // on as few nodes as hold them
  SimulationOutput output;  // checked
};
ExitStatus simulate_on_machine(const OnMachine& command);

}  // namespace lockstep
