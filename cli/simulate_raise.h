// A job of which ranks raise an exception makes no steps that could be timed; but who raises, and
// who then waits for ever, follows from the calls alone.
#pragma once

#include <optional>
#include <string>

#include "cli/cmd_simulate.h"
#include "cli/simulate_program.h"
#include "reports/exit_status.h"

namespace lockstep {

struct RaisedJob {
  Run run;                     // the derived calls
  SimulatedProgram simulated;  // up to where each rank came; its clock stands still
};

// The job that was derived into `folder`, every rank of it. Nothing where none of them raised, or
// where their calls cannot be simulated: then what went wrong is something else.
std::optional<RaisedJob> raised_job(const std::string& folder);

// `scenario`: its name. Writes who raises, who waits, and the verifier's report. Returns
// `findings`, or what went wrong with writing.
ExitStatus report_raise(const std::string& scenario, RaisedJob job, const SimulationOutput& output);

}  // namespace lockstep
