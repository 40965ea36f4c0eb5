// Runs a study: every strategy with every remedy, on real processes, several times each.
#pragma once

#include <ostream>
#include <string>

#include "base/interrupts.h"
#include "base/result.h"
#include "runtime/job/study.h"

namespace lockstep::runtime {

struct StudyOptions {
  std::string worker;  // the worker program
  std::string folder;  // exists; a folder for each combination is made in it
  bool quiet = false;  // nothing but the table's files
};

// Runs and measures, prints the table to `said` and writes it to study.json and study.md in the
// folder; a combination that hangs is a row of it. After the user's signal: the table so far.
// Errors: a file or folder that cannot be written, a worker that cannot be started.
Status run_study(const Study& study, const StudyOptions& options, Interrupts& interrupts,
                 std::ostream& said);

}  // namespace lockstep::runtime
