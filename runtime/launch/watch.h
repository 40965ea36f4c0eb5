// WatchSource: reads and judges, again and again, the ring files of a job that somebody else
// started.
//
// Each reading is a prefix of what the ranks will have recorded, and is judged as such. So what a
// report says about a running job stays true, whatever the job does next. A rank whose process is
// gone without an end mark counts as killed, once two polls found it gone and silent. The job's
// files are never written.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/result.h"
#include "reports/exit_status.h"
#include "reports/findings/forms.h"
#include "trace/run.h"
#include "verify/report.h"

namespace lockstep::runtime {

// Whether a process of this machine has ended. A zombie has.
bool has_ended(std::int64_t pid);

class WatchSource {
 public:
  struct Options {
    std::string folder;
    // Whether process ids in the ring files are this machine's. They are not if the job runs in
    // another container, or if other machines share the folder. (Ranks that name another host are
    // never looked for.)
    bool look_for_processes = true;
  };
  explicit WatchSource(Options options) : options_(std::move(options)) {}

  struct Poll {
    trace::Run run;
    verify::Report report;
    // Every rank has ended, and the report is final. If ranks are absent (they recorded on another
    // machine, or never began), this holds after kPollsForAbsent polls that found nothing new.
    bool over = false;
    bool one_host = true;  // all ranks run on this machine: times can be compared with now
  };
  static constexpr int kPollsForAbsent = 10;

  // Nothing if no rank has begun to record. Cost: O(events in the rings). Errors: the folder, or
  // all of its ring files, cannot be read.
  Result<std::optional<Poll>> poll();

 private:
  void mark_gone(trace::Run& run);

  Options options_;
  // A rank whose process was gone at the last poll.
  struct VanishedProcess {
    std::uint64_t events = 0;  // recorded by then
    bool moved = false;        // it has recorded since it was first found gone
  };

  bool foreign_processes_ = false;  // process ids are not this machine's
  int polls_after_end_ = 0;
  std::map<trace::Rank, VanishedProcess> gone_;
};

// The whole command: `lockstep watch`.

struct WatchOptions {
  std::string folder;             // with the job's ring files
  bool once = false;              // show the state once and exit
  bool ignore_processes = false;  // the negation of WatchSource::Options::look_for_processes
  double interval_s = 1;          // between two polls; longer if a poll takes long
  double late_s = 0.1;            // report ranks that are this far behind the median of their group
  // /bin/sh runs it for each new finding that counts, with variables that describe the worst one
  // (docs/watch.md); empty: none.
  std::string exec;
  reports::ReportOptions report;
};

// Shows the state of the job, as a screen on a terminal and as lines elsewhere, until every rank
// has ended or a hang is proven. Then writes the reports. Status: as exit_status() defines it; 3
// for a job without findings that did not end well; 2 for a folder that cannot be used; 4 for files
// that cannot be written. Prints errors.
reports::ExitStatus watch_job(const WatchOptions& options);

}  // namespace lockstep::runtime
