// What `lockstep run` says beside the report: how each job went and, of several, a table.
#pragma once

#include <string>
#include <vector>

#include "runtime/job/scenario.h"
#include "runtime/launch/job_runner.h"

namespace lockstep {

// "4 ranks on gloo, manual gradient synchronisation, remedy none, 6 steps".
std::string job_in_words(const Scenario& scenario);

// How it ended, workers that died, losses, retrieval, cost of recording: a line or more for each
// that there is something to say of; every line ends.
std::string run_summary(const JobOutcome& outcome);

struct TableRow {
  std::string scenario;  // the file's stem
  std::string verdict, rule, culprits;
  std::string expected;  // whether it went so: "yes", "NO", "" where nothing is expected
  double wall_s = 0;
};
TableRow table_row(const Scenario& scenario, const JobOutcome& outcome);
std::string table(const std::vector<TableRow>& rows);

}  // namespace lockstep
