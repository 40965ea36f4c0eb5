// Runs what the user wants run when something is found: `lockstep watch --exec CMD`.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/interrupts.h"
#include "base/result.h"
#include "verify/report.h"

namespace lockstep {

// What the command is told, as names and values of its environment:
//   LOCKSTEP_FOLDER     the job's folder
//   LOCKSTEP_RULE       the worst finding's rule id
//   LOCKSTEP_SEVERITY, LOCKSTEP_CERTAINTY   its own words: "error", "proven"
//   LOCKSTEP_CULPRITS   its culprits, "1,3"; empty: none can be singled out
//   LOCKSTEP_MESSAGE    its message, one line
std::vector<std::pair<std::string, std::string>> exec_environment(const std::string& folder,
                                                                  const Finding& worst);

// Runs `command` with /bin/sh and waits for it; its output goes to standard error. A signal that
// comes meanwhile ends it.
// Errors: it cannot be started, or it fails, in its own words of exit.
Status run_exec(const std::string& command, const std::string& folder, const Finding& worst,
                Interrupts& interrupts);

}  // namespace lockstep
