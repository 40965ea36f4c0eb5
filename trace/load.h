// Loads recorded runs: files and folders of every known format.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "trace/evidence/evidence.h"
#include "trace/run.h"

namespace lockstep::trace {

struct Format;

struct LoadOptions {
  std::string format;        // one of all_formats(); empty: by content
  std::string rank_pattern;  // regular expression (ECMAScript) whose first group is the rank in a
                             // file's name; empty: the usual names (rank_in_name)
  unsigned threads = 0;      // 0: one per core
  // True: join everything that is there of a job. One of several formats provides the calls; the
  // others, logs, stacks and RAS become Run::notes (trace/evidence). False: several formats are an
  // error, and files that are not traces are skipped.
  bool evidence = false;
  std::int32_t expect_ranks = 0;  // the job's size as the user gives it; 0: as recorded
  bool work = false;              // TraceFile::work
};

// Reads every trace among `paths`: files, "-" (standard input), or folders whose files are read;
// plain, packed or in an archive (trace_files.h). Where a folder itself holds no trace, the folders
// in it are searched, two levels deep (node0/, node1/): unless two of them hold the same rank,
// which makes them two runs. A file's format is recognised by its content (trace/formats). All
// files must have one format: lockstep's own two forms count as one, and a digest as the format
// that it was made from. The order of paths never changes the result.
//
// In a folder, files of unknown formats are skipped. But a file that is named like the traces
// next to it (rank_3.json and rank_4.json), and every file that the user named, is listed in
// Run::unreadable if it cannot be read. Unusable records are counted per rank. If a folder holds a
// rank's ring file and its text form, the ring file is read; if it holds traces, its digests
// are skipped.
//
// Errors: a path that does not exist, a folder without any trace (or evidence), folders of several
// runs in a folder, files of several formats, an unknown format, a bad pattern, nothing readable at
// all. Memory follows the number of events (about 32 bytes each), not the size of the text.
Result<Run> load_run(const std::vector<std::string>& paths, const LoadOptions& options = {});

// The traces as read from the files, before they are linked and made one run.
struct LoadedTraces {
  Tables tables;
  std::vector<RankTrace> traces;  // in the order of the files' names; at least one, or a note
  const Format* format =
      nullptr;  // of all of them; "text" for lockstep's own forms; null: no trace
  std::vector<Run::Unreadable> unreadable;
  std::vector<std::string> earlier_runs;  // ring files of these, which were not read
  std::vector<std::string> other_jobs;    // whose files were left out: a sentence each
  JobEvidence evidence;                   // with LoadOptions::evidence
  std::int32_t expect_ranks = 0;          // as LoadOptions::expect_ranks
};
// Errors: as load_run.
Result<LoadedTraces> load_traces(const std::vector<std::string>& paths,
                                 const LoadOptions& options = {});
// Links the traces and makes one run of them. load_run is load_traces, then this.
Run complete_run(LoadedTraces loaded);

// Makes one run of traces that were read into `tables`: sorts the ranks, keeps one trace each (the
// one with more events), takes the world size from the headers and notes where these disagree. The
// order of `traces` does not matter.
Run assemble_run(Tables tables, std::vector<RankTrace> traces);

}  // namespace lockstep::trace
