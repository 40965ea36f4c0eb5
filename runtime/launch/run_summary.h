// What `lockstep run` prints in addition to the report: how each job ended, whether that was
// expected, and for several jobs, a table.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status_line.h"
#include "runtime/job/scenario.h"
#include "runtime/launch/job_runner.h"
#include "runtime/launch/live_verifier.h"

namespace lockstep::runtime {

// How the job went, compared with what its scenario expects: the differences, a sentence each;
// empty if all is as expected. The leading finding is the first of the report.
std::vector<std::string> differences(const Scenario::Expect& expected, const JobOutcome& outcome);

// "4 ranks on gloo, manual gradient synchronisation, remedy none, 6 steps".
std::string job_in_words(const Scenario& scenario);

// How the job ended, workers that died, losses, retrieval, cost of recording. One line or more for
// each that applies; every line ends with a newline.
std::string run_summary(const JobOutcome& outcome);

struct TableRow {
  std::string scenario;  // the file's stem
  std::string verdict, rule, culprits;
  std::string expected;  // whether it went as expected: "yes", "NO"; "" if nothing is expected
  double wall_s = 0;
};
// The row of a job that has ended.
TableRow table_row(const Scenario& scenario, const JobOutcome& outcome);
// A header and a line for each row.
std::string table(const std::vector<TableRow>& rows);

// Shows how far a job is.
class RunProgress {
 public:
  struct Job {
    int ranks = 0;
    std::int64_t steps = 0;  // 0: unknown
  };
  // Shows it on `line`, which must outlive this.
  RunProgress(StatusLine& line, const Job& job) : line_(line), job_(job) {}

  void update(const JobProgress& progress, double elapsed_s);

 private:
  // "step 12/40  loss 2.31  4 ranks  8.3 steps/s".
  std::string text(const JobProgress& progress, double elapsed_s) const;

  StatusLine& line_;
  Job job_;
  std::int64_t first_steps_ = 0;  // finished steps when the first was seen, and the time then
  double first_s_ = 0;
};

}  // namespace lockstep::runtime
