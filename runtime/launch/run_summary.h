// What `lockstep run` says beside the report: how each job went and, of several, a table.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "runtime/job/scenario.h"
#include "runtime/launch/job_runner.h"
#include "runtime/launch/live_verifier.h"

namespace lockstep::runtime {

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

// RunProgress: tells somebody who waits how far a job is.

class RunProgress {
 public:
  struct Options {
    bool terminal = false;  // one line that is written over; else a line every few seconds
    bool silent = false;
    int ranks = 0;
    std::int64_t steps = 0;  // 0: not known
  };
  // `out` must outlive this.
  RunProgress(std::ostream& out, const Options& options) : out_(out), options_(options) {}

  void update(const JobProgress& progress, double elapsed_s);
  // Erases the line on a terminal.
  void finish();

 private:
  // "step 12/40  loss 2.31  4 ranks  8.3 steps/s".
  std::string line(const JobProgress& progress, double elapsed_s);

  std::ostream& out_;
  Options options_;
  double shown_at_s_ = 0;
  std::string shown_;
  std::int64_t first_steps_ = 0;  // when the first step was seen finished, and how many were
  double first_s_ = 0;
};

}  // namespace lockstep::runtime
