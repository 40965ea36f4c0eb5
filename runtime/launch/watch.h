// WatchSource: reads the ring files of a job that somebody else started, and judges them, again and
// again.
//
// Every reading is a prefix of what the ranks will have done, and is judged as such, so that what
// is said of a running job stays true whatever it does next. A rank whose process is gone without
// an end mark will do nothing more: it counts as killed, once it has been gone and silent for two
// looks. Nothing is written into the job's files.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/interrupts.h"
#include "base/result.h"
#include "reports/exit_status.h"
#include "reports/findings/forms.h"
#include "trace/run.h"
#include "verify/report.h"

namespace lockstep::runtime {

// Whether a process of this machine has ended; a zombie has.
bool has_ended(std::int64_t pid);

// The name by which ring files know this machine.
std::string this_host();

class WatchSource {
 public:
  struct Options {
    std::string folder;
    // Whether the ranks' process numbers are this machine's: not in another container, nor where
    // the folder is shared with other machines. (Ranks that name another host are never looked
    // for.)
    bool look_for_processes = true;
  };
  explicit WatchSource(Options options) : options_(std::move(options)) {}

  struct Look {
    trace::Run run;
    verify::Report report;
    // Every rank has ended, and the report is the last word. Where ranks are absent (they recorded
    // on another machine, or never began) that is so after kLooksForAbsent looks at nothing new.
    bool over = false;
    bool one_host = true;  // all ranks run on this machine: times can be compared with now
  };
  static constexpr int kLooksForAbsent = 10;

  // Nothing where no rank has begun to record. O(events in the rings).
  // Errors: the folder cannot be read, or none of its ring files.
  Result<std::optional<Look>> look();

 private:
  void mark_gone(trace::Run& run);

  Options options_;
  // A rank whose process was gone at the last look.
  struct Gone {
    std::uint64_t events = 0;  // recorded by then
    bool moved = false;        // it has recorded since it was first seen gone
  };

  bool foreign_processes_ = false;  // process numbers are not this machine's
  int looks_after_end_ = 0;
  std::map<trace::Rank, Gone> gone_;
};

// Runs what the user wants run when something is found: `lockstep watch --exec CMD`.

// What the command is told, as names and values of its environment:
//   LOCKSTEP_FOLDER     the job's folder
//   LOCKSTEP_RULE       the worst finding's rule id
//   LOCKSTEP_SEVERITY, LOCKSTEP_CERTAINTY   its own words: "error", "proven"
//   LOCKSTEP_CULPRITS   its culprits, "1,3"; empty: none can be singled out
//   LOCKSTEP_MESSAGE    its message, one line
std::vector<std::pair<std::string, std::string>> exec_environment(const std::string& folder,
                                                                  const verify::Finding& worst);

// Runs `command` with /bin/sh and waits for it; its output goes to standard error. A signal that
// comes meanwhile ends it.
// Errors: it cannot be started, or it fails, in its own words of exit.
Status run_exec(const std::string& command, const std::string& folder, const verify::Finding& worst,
                Interrupts& interrupts);

// All of it, for somebody who waits: `lockstep watch`.

struct WatchOptions {
  std::string folder;             // of the job's ring files
  bool once = false;              // says how it stands now, and ends
  bool ignore_processes = false;  // not WatchSource::Options::look_for_processes
  double interval_s = 1;          // between two looks; more where a look takes long
  double late_s = 0.1;            // tells of ranks so far behind the median of their group
  std::string exec;               // run_exec()'s, for each new finding that counts; empty: none
  reports::ReportOptions report;
};

// Shows how the job stands, as a screen on a terminal and as lines elsewhere, until every rank has
// ended or it is proven that the job can never go on; then writes the reports. Status: by the
// contract (exit_status()); 3 where a job without findings did not end well; 2 for a folder that
// cannot be used; 4 for what cannot be written. Errors are printed.
reports::ExitStatus watch_job(const WatchOptions& options);

}  // namespace lockstep::runtime
